#include "cli/inspect.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/fingerprint.h"
#include "formats/gguf_file.h"
#include "formats/model_metadata.h"
#include "formats/model_summary.h"
#include "model/description.h"
#include "tensor/kv_layout.h"

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
  std::string model;  // "gpt2", "llama"; empty where the file has none
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
  const GgufFile& file;
  TokenizerFacts tokenizer;
  std::optional<ModelMetadata> model;  // absent in a file with the tokenizer only
  ModelSummary summary;
  formats::Fingerprint fingerprint;
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
  return out;
}

void print_model(const Report& r) {
  const ModelMetadata& m = *r.model;
  fmt::print("shape        {} layers, {} wide, {} query and {} KV heads of {}, feed-forward {}\n", m.layers,
             m.dim, m.heads, m.kv_heads, m.head_dim, m.ffn_dim);
  fmt::print("             vocabulary {}, context {}, {}\n", m.vocab, m.context, extras_text(m));
  fmt::print("rope         {}\n", rope_text(m.rope));
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

void print_text(const Report& r) {
  fmt::print("file         {}, GGUF {}, {}\n", r.file.name(), r.file.version(),
             size_text(r.file.file_bytes()));
  const std::string title = text_or_empty(r.file, "general.name");
  fmt::print("model        {}{}\n", text_or_empty(r.file, "general.architecture"),
             title.empty() ? "" : fmt::format(" \"{}\"", title));
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
            {"factor", m.rope.factor}}},
          {"windows", m.windows},
          {"tied_embeddings", m.tied_embeddings},
          {"attention_bias", m.attention_bias},
          {"attention_output_bias", m.attention_output_bias},
          {"qk_norm", m.qk_norm}};
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
  ordered_json out{{"file", r.file.name()},
                   {"file_bytes", r.file.file_bytes()},
                   {"gguf_version", r.file.version()},
                   {"architecture", text_or_empty(r.file, "general.architecture")},
                   {"name", text_or_empty(r.file, "general.name")},
                   {"tokenizer",
                    {{"model", r.tokenizer.model},
                     {"pre", r.tokenizer.pre},
                     {"tokens", r.tokenizer.tokens},
                     {"chat_template", r.tokenizer.chat_template}}},
                   {"tensors", r.file.tensors().size()}};
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

int run_inspect(const InspectFlags& flags) {
  const auto file = GgufFile::open(flags.model);
  if (!file) return complain(file.error(), 1);
  Report report{.file = *file,
                .tokenizer = tokenizer_facts(*file),
                .model = {},
                .summary = {},
                .fingerprint = {},
                .context = 0,
                .kv_dtype = flags.kv_dtype,
                .kv = {}};
  // Tokenizer-only files come in every architecture; only weights need one that can run.
  if (!file->tensors().empty()) {
    auto model = formats::read_model_metadata(*file);
    if (!model) return complain(model.error(), 1);
    if (const Status sound = formats::check_model_tensors(*file, *model); !sound.ok())
      return complain(sound, 1);
    if (flags.context > model->context) {
      return complain({ErrorCode::kInvalidArgument, fmt::format("--ctx {} is above the model's context of {}",
                                                                flags.context, model->context)},
                      2);
    }
    const KvDType dtype = flags.kv_dtype == "f32" ? KvDType::kF32 : KvDType::kBf16;
    report.context = flags.context > 0 ? flags.context : model->context;
    report.kv = kv_needs(*model, report.context, dtype);
    report.summary = formats::summarise(*file, *model);
    const KvLayout layout{.kv_heads = static_cast<std::int32_t>(model->kv_heads),
                          .head_dim = static_cast<std::int32_t>(model->head_dim),
                          .dtype = dtype};
    report.fingerprint = formats::model_fingerprint(*file, "file", layout.id());
    report.model = std::move(*model);
  }
  flags.json ? print_json(report) : print_text(report);
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a model file is and what it needs in memory");
  command->add_option("model", flags->model, "A GGUF file")->required()->type_name("MODEL");
  command->add_option("--ctx", flags->context, "Tokens of context to reckon with; default: the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 28));
  command->add_option("--kv-dtype", flags->kv_dtype, "Type of the KV cache")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &exit_code] { exit_code = run_inspect(*flags); });
}

}  // namespace shoal::cli
