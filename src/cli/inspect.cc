#include "cli/inspect.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "cli/inspect_report.h"
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

struct InspectFlags {
  std::string model;
  std::int64_t context = 0;  // 0: the model's own
  std::string kv_dtype = "bf16";
  bool json = false;
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

// A file without weights: its tokenizer is all there is, and it may be of any architecture.
InspectReport report_of_vocabulary(const GgufFile& file) {
  InspectReport report;
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

Expected<InspectReport> report_of_model(const InspectFlags& flags) {
  SHOAL_ASSIGN(checkpoint, formats::Checkpoint::open(flags.model));
  SHOAL_ASSIGN(tokenizer, tokenizer_of(flags.model));
  SHOAL_ASSIGN(generation, formats::read_generation_defaults(flags.model));
  const ModelMetadata& model = checkpoint.metadata();
  if (flags.context > model.context) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--ctx {} is above the model's context of {}", flags.context, model.context));
  }
  InspectReport report;
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

Expected<InspectReport> make_report(const InspectFlags& flags) {
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
  if (!report)
    return complain("inspect", report.error(), report.error().code() == ErrorCode::kInvalidArgument ? 2 : 1);
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
