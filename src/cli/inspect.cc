#include "cli/inspect.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/fingerprint.h"
#include "formats/generation_config.h"
#include "formats/gguf_file.h"
#include "formats/model_metadata.h"
#include "formats/model_summary.h"
#include "model/description.h"
#include "tensor/kv_layout.h"
#include "tokenizer/tokenizer.h"

namespace shoal::cli {
namespace {

using formats::GgufFile;
using formats::ModelMetadata;
using formats::ModelPart;
using formats::ModelSummary;
using nlohmann::ordered_json;

struct InspectFlags {
  std::string model;
  std::int64_t context = 0;  // 0: the model's own
  std::string kv_dtype = "bf16";
  bool json = false;
};

struct TokenizerFacts {
  std::string model;  // "gpt2", "llama", "tokenizer.json"; empty where there is none
  std::string pre;
  std::uint64_t tokens = 0;
  bool chat_template = false;
};

// KV of one sequence in one group of layers.
struct KvNeed {
  std::size_t layers = 0;
  std::int64_t window = 0;
  std::int64_t pages = 0;
  std::uint64_t page_bytes = 0;

  std::uint64_t bytes() const { return static_cast<std::uint64_t>(pages) * page_bytes; }
};

// What the two forms of output are written from.
struct Report {
  std::string path;
  std::string format;  // "GGUF 3"
  std::uint64_t file_bytes = 0;
  std::size_t files = 1;
  std::size_t tensors = 0;
  std::string architecture;
  std::string title;
  TokenizerFacts tokenizer;
  std::optional<ModelMetadata> model;  // absent in a file with the tokenizer only
  ModelSummary summary;
  formats::Fingerprint fingerprint;
  formats::GenerationDefaults generation;
  std::int64_t context = 0;
  std::string kv_dtype;
  std::vector<KvNeed> kv;

  std::uint64_t kv_bytes() const {
    std::uint64_t sum = 0;
    for (const KvNeed& need : kv) sum += need.bytes();
    return sum;
  }
};

std::string text_or_empty(const GgufFile& file, std::string_view key) {
  const formats::GgufValue* value = file.find(key);
  const auto text = value == nullptr ? std::nullopt : value->as_string();
  return text ? formats::printable(*text) : std::string();
}

TokenizerFacts tokenizer_facts(const GgufFile& file) {
  TokenizerFacts facts;
  facts.model = text_or_empty(file, "tokenizer.ggml.model");
  facts.pre = text_or_empty(file, "tokenizer.ggml.pre");
  if (const auto* tokens = file.find("tokenizer.ggml.tokens")) facts.tokens = tokens->count();
  facts.chat_template = file.has("tokenizer.chat_template");
  return facts;
}

std::vector<KvNeed> kv_needs(const ModelMetadata& model, std::int64_t context, KvDType dtype) {
  std::vector<KvNeed> out;
  for (const KvGroup& group : model::describe(model).kv_groups) {
    const KvLayout layout{.layers = static_cast<std::int32_t>(group.layers.size()),
                          .kv_heads = group.kv_heads,
                          .head_dim = group.head_dim,
                          .slots = 1,
                          .dtype = dtype};
    std::int64_t pages = (context + kPageTokens - 1) / kPageTokens;
    // The most pages that `window` neighbouring positions can touch; those behind are given back.
    if (group.window > 0)
      pages = std::min<std::int64_t>(pages, (group.window + kPageTokens - 2) / kPageTokens + 1);
    out.push_back({group.layers.size(), group.window, pages, layout.page_bytes()});
  }
  return out;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= std::uint64_t{1} << 30)
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1U << 30));
  if (bytes >= std::uint64_t{1} << 20)
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1U << 20));
  return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024.0);
}

double share(std::int64_t part, std::int64_t total) {
  return total == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(total);
}

std::string_view scaling_name(formats::RopeScaling scaling) {
  switch (scaling) {
    case formats::RopeScaling::kNone:
      return "none";
    case formats::RopeScaling::kLinear:
      return "linear";
    case formats::RopeScaling::kYarn:
      return "yarn";
    case formats::RopeScaling::kLlama3:
      return "llama3";
  }
  return "none";
}

std::string rope_text(const formats::RopeSettings& rope) {
  const bool factor =
      rope.scaling == formats::RopeScaling::kLinear || rope.scaling == formats::RopeScaling::kYarn;
  return fmt::format(
      "base {:g}, {} dimensions, {}, scaling {}{}", rope.freq_base, rope.dims,
      rope.style == formats::RopeStyle::kInterleaved ? "neighbours turn together" : "halves turn together",
      scaling_name(rope.scaling), factor ? fmt::format(" by {:g}", rope.factor) : "");
}

std::string extras_text(const ModelMetadata& m) {
  std::string out = m.tied_embeddings ? "tied embeddings" : "output matrix of its own";
  if (m.attention_bias) out += ", biases on Q, K and V";
  if (m.attention_output_bias) out += ", bias after attention";
  if (m.qk_norm) out += ", norms on Q and K";
  if (m.post_norms) out += ", norms behind each block";
  if (m.activation == formats::Activation::kGeluTanh) out += ", GELU";
  if (m.attention_softcap > 0) out += fmt::format(", scores capped at {:g}", m.attention_softcap);
  if (m.final_softcap > 0) out += fmt::format(", logits capped at {:g}", m.final_softcap);
  return out;
}

void print_model(const Report& r) {
  const ModelMetadata& m = *r.model;
  fmt::print("shape        {} layers, {} wide, {} query and {} KV heads of {}, feed-forward {}\n", m.layers,
             m.dim, m.heads, m.kv_heads, m.head_dim, m.ffn_dim);
  fmt::print("             vocabulary {}, context {}, {}\n", m.vocab, m.context, extras_text(m));
  fmt::print("rope         {}\n", rope_text(m.rope));
  if (m.window_rope) fmt::print("             in layers with a window: {}\n", rope_text(*m.window_rope));
  fmt::print("fingerprint  {}\n\n", r.fingerprint.hex());

  fmt::print("{:<14}{:>16}{:>9}{:>14}{:>9}\n", "part", "parameters", "share", "bytes", "share");
  const auto row = [&](std::string_view name, const formats::Weight& w) {
    fmt::print("{:<14}{:>16}{:>7.1f} %{:>14}{:>7.1f} %\n", name, w.parameters,
               100.0 * share(w.parameters, r.summary.total.parameters),
               size_text(static_cast<std::uint64_t>(w.bytes)), 100.0 * share(w.bytes, r.summary.total.bytes));
  };
  for (std::size_t i = 0; i < formats::kModelParts; ++i) {
    const auto part = static_cast<ModelPart>(i);
    if (r.summary.part(part).parameters > 0) row(formats::model_part_name(part), r.summary.part(part));
  }
  row("total", r.summary.total);
  fmt::print("\n");
  for (const auto& [type, weight] : r.summary.by_type) row(type, weight);
}

void print_memory(const Report& r) {
  const auto weights = static_cast<std::uint64_t>(r.summary.total.bytes);
  fmt::print("\nmemory for one sequence of {} tokens, --kv-dtype {}\n", r.context, r.kv_dtype);
  fmt::print("weights      {}, of which a decoded token reads {}\n", size_text(weights),
             size_text(static_cast<std::uint64_t>(r.summary.decode_bytes)));
  for (const KvNeed& need : r.kv) {
    fmt::print("KV           {}: {} pages of {} tokens at {}, {} layers with {}\n", size_text(need.bytes()),
               need.pages, kPageTokens, size_text(need.page_bytes), need.layers,
               need.window == 0 ? "full attention" : fmt::format("a window of {}", need.window));
  }
  fmt::print("together     {}\n", size_text(weights + r.kv_bytes()));
}

void print_generation(const formats::GenerationDefaults& g) {
  std::string out;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, *value);
  };
  add("temperature", g.temperature);
  add("top_p", g.top_p);
  add("top_k", g.top_k);
  add("min_p", g.min_p);
  add("repetition penalty", g.repetition_penalty);
  if (!out.empty()) fmt::print("sampling     {}, as its makers recommend\n", out);
}

void print_text(const Report& r) {
  fmt::print("file         {}, {}, {}{}\n", r.path, r.format, size_text(r.file_bytes),
             r.files > 1 ? fmt::format(" in {} files", r.files) : "");
  fmt::print("model        {}{}\n", r.architecture, r.title.empty() ? "" : fmt::format(" \"{}\"", r.title));
  if (r.tokenizer.model.empty()) {
    fmt::print("tokenizer    none\n");
  } else {
    fmt::print("tokenizer    {}{}, {} tokens, {}\n", r.tokenizer.model,
               r.tokenizer.pre.empty() ? "" : fmt::format(" ({})", r.tokenizer.pre), r.tokenizer.tokens,
               r.tokenizer.chat_template ? "with a chat template" : "without a chat template");
  }
  if (!r.model) {
    fmt::print("weights      none: a file for the tokenizer only\n");
    return;
  }
  print_generation(r.generation);
  print_model(r);
  print_memory(r);
}

ordered_json weight_json(const formats::Weight& weight, const formats::Weight& total) {
  return {{"parameters", weight.parameters},
          {"share", share(weight.parameters, total.parameters)},
          {"bytes", weight.bytes}};
}

ordered_json model_json(const ModelMetadata& m) {
  return {{"layers", m.layers},
          {"dim", m.dim},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"ffn_dim", m.ffn_dim},
          {"vocab", m.vocab},
          {"context", m.context},
          {"rms_eps", m.rms_eps},
          {"rope",
           {{"base", m.rope.freq_base},
            {"dims", m.rope.dims},
            {"style", m.rope.style == formats::RopeStyle::kInterleaved ? "interleaved" : "half-split"},
            {"scaling", scaling_name(m.rope.scaling)},
            {"factor", m.rope.factor},
            {"window_base", m.window_rope ? m.window_rope->freq_base : m.rope.freq_base}}},
          {"windows", m.windows},
          {"tied_embeddings", m.tied_embeddings},
          {"attention_bias", m.attention_bias},
          {"attention_output_bias", m.attention_output_bias},
          {"qk_norm", m.qk_norm},
          {"post_norms", m.post_norms},
          {"activation", m.activation == formats::Activation::kSilu ? "silu" : "gelu_tanh"},
          {"attention_scale", m.attention_scale},
          {"attention_softcap", m.attention_softcap},
          {"final_softcap", m.final_softcap},
          {"embedding_scale", m.embedding_scale}};
}

ordered_json memory_json(const Report& r) {
  ordered_json groups = ordered_json::array();
  for (const KvNeed& need : r.kv) {
    groups.push_back({{"layers", need.layers},
                      {"window", need.window},
                      {"pages", need.pages},
                      {"page_tokens", kPageTokens},
                      {"page_bytes", need.page_bytes},
                      {"bytes", need.bytes()}});
  }
  const auto weights = static_cast<std::uint64_t>(r.summary.total.bytes);
  return {{"context", r.context},
          {"kv_dtype", r.kv_dtype},
          {"weight_bytes", weights},
          {"decode_bytes_per_token", r.summary.decode_bytes},
          {"kv_bytes", r.kv_bytes()},
          {"kv_groups", groups},
          {"total_bytes", weights + r.kv_bytes()}};
}

void print_json(const Report& r) {
  ordered_json out{{"file", r.path},
                   {"format", r.format},
                   {"file_bytes", r.file_bytes},
                   {"files", r.files},
                   {"architecture", r.architecture},
                   {"name", r.title},
                   {"tokenizer",
                    {{"model", r.tokenizer.model},
                     {"pre", r.tokenizer.pre},
                     {"tokens", r.tokenizer.tokens},
                     {"chat_template", r.tokenizer.chat_template}}},
                   {"tensors", r.tensors}};
  if (r.model) {
    out["model"] = model_json(*r.model);
    out["fingerprint"] = r.fingerprint.hex();
    ordered_json parts;
    for (std::size_t i = 0; i < formats::kModelParts; ++i) {
      const auto part = static_cast<ModelPart>(i);
      parts[std::string(formats::model_part_name(part))] = weight_json(r.summary.part(part), r.summary.total);
    }
    out["parts"] = parts;
    ordered_json types;
    for (const auto& [type, weight] : r.summary.by_type) types[type] = weight_json(weight, r.summary.total);
    out["types"] = types;
    out["total"] = weight_json(r.summary.total, r.summary.total);
    out["memory"] = memory_json(r);
  }
  // File names need not be UTF-8.
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

int complain(const Status& status, int exit_code) {
  fmt::print(stderr, "shoal inspect: {}\n", status.message());
  return exit_code;
}

// A file without weights: its tokenizer is all there is, and it may be of any architecture.
Report report_of_vocabulary(const GgufFile& file) {
  Report report;
  report.path = file.name();
  report.format = fmt::format("GGUF {}", file.version());
  report.file_bytes = file.file_bytes();
  report.architecture = text_or_empty(file, "general.architecture");
  report.title = text_or_empty(file, "general.name");
  report.tokenizer = tokenizer_facts(file);
  return report;
}

Expected<TokenizerFacts> tokenizer_of(const std::filesystem::path& model) {
  TokenizerFacts facts;
  std::error_code ignored;
  if (!std::filesystem::is_directory(model, ignored)) {
    SHOAL_ASSIGN(file, GgufFile::open(model));
    return tokenizer_facts(file);
  }
  if (!std::filesystem::exists(model / "tokenizer.json", ignored)) return facts;
  SHOAL_ASSIGN(loaded, tokenizer::Tokenizer::load(model));
  facts.model = "tokenizer.json";
  facts.tokens = static_cast<std::uint64_t>(loaded->vocab_size());
  facts.chat_template = !loaded->chat_template().empty();
  return facts;
}

Expected<Report> report_of_model(const InspectFlags& flags) {
  SHOAL_ASSIGN(checkpoint, formats::Checkpoint::open(flags.model));
  SHOAL_ASSIGN(tokenizer, tokenizer_of(flags.model));
  SHOAL_ASSIGN(generation, formats::read_generation_defaults(flags.model));
  const ModelMetadata& model = checkpoint.metadata();
  if (flags.context > model.context) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--ctx {} is above the model's context of {}", flags.context, model.context));
  }
  Report report;
  report.path = checkpoint.name();
  report.format = checkpoint.format();
  report.file_bytes = checkpoint.file_bytes();
  report.files = checkpoint.table().files().size();
  report.tensors = checkpoint.tensors().size();
  report.architecture = model.architecture;
  report.title = formats::printable(model.name);
  report.tokenizer = std::move(tokenizer);
  report.generation = std::move(generation);
  report.context = flags.context > 0 ? flags.context : model.context;
  report.kv_dtype = flags.kv_dtype;
  report.kv = kv_needs(model, report.context, flags.kv_dtype == "f32" ? KvDType::kF32 : KvDType::kBf16);
  report.summary = formats::summarise(checkpoint.table(), model);
  // As Model::load reckons it.
  report.fingerprint = formats::model_fingerprint(checkpoint, "file", "v1");
  report.model = model;
  return report;
}

Expected<Report> make_report(const InspectFlags& flags) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(flags.model, ignored)) {
    SHOAL_ASSIGN(file, GgufFile::open(flags.model));
    // The first file of a split model may hold keys alone.
    if (file.tensors().empty() && !file.has("split.count")) return report_of_vocabulary(file);
  }
  return report_of_model(flags);
}

int run_inspect(const InspectFlags& flags) {
  const auto report = make_report(flags);
  if (!report) return complain(report.error(), report.error().code() == ErrorCode::kInvalidArgument ? 2 : 1);
  flags.json ? print_json(*report) : print_text(*report);
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a model is and what it needs in memory");
  command
      ->add_option("model", flags->model, "A GGUF file (the first of a split one), or a Hugging Face folder")
      ->required()
      ->type_name("MODEL");
  command->add_option("--ctx", flags->context, "Tokens of context to reckon with; default: the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 28));
  command->add_option("--kv-dtype", flags->kv_dtype, "Type of the KV cache")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &exit_code] { exit_code = run_inspect(*flags); });
}

}  // namespace shoal::cli
