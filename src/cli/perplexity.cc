#include "cli/perplexity.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli_model.h"
#include "cli/cli_sequences.h"
#include "core/clock.h"
#include "core/mapped_file.h"
#include "kernels/sampling_math.h"
#include "tokenizer/tokenizer.h"

namespace shoal::cli {

namespace {

constexpr std::int64_t kWindow = 512;
constexpr std::int64_t kFirstScored = kWindow / 2;

struct PerplexityFlags {
  ModelFlags model;
  std::string file;
  std::int64_t windows = 0;  // 0: all
  bool json = false;
};

struct Result {
  std::int64_t windows = 0;
  std::int64_t scored = 0;
  double nll = 0;
  double nll_squared = 0;
  double seconds = 0;

  double mean() const { return nll / static_cast<double>(scored); }
  double perplexity() const { return std::exp(mean()); }
  // Standard error of the perplexity, from the spread of single tokens.
  double error() const {
    if (scored < 2) return 0;
    const double variance = nll_squared / static_cast<double>(scored) - mean() * mean();
    return std::sqrt(std::max(0.0, variance) / static_cast<double>(scored - 1)) * perplexity();
  }
};

struct Text {
  std::vector<TokenId> ids;
  bool begin_token = false;
  TokenId bos = 0;
};

Expected<Text> tokenise(const PerplexityFlags& flags) {
  SHOAL_ASSIGN(tokenizer, tokenizer::Tokenizer::load(flags.model.model));
  SHOAL_ASSIGN(file, MappedFile::open(flags.file));
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  SHOAL_ASSIGN(ids, tokenizer->encode(bytes, {.add_special = true, .parse_special = false}));
  Text text;
  text.ids = std::move(ids);
  text.begin_token = tokenizer->add_bos() && tokenizer->bos().has_value();
  if (text.begin_token) text.bos = *tokenizer->bos();
  if (static_cast<std::int64_t>(text.ids.size()) < kWindow) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}: {} tokens; at least one window of {} is needed", flags.file,
                              text.ids.size(), kWindow));
  }
  return text;
}

// Scores tokens [kFirstScored + 1, kWindow) of one window, each given those before it.
void score_window(OpenModel& open, Sequences& sequences, std::span<const TokenId> tokens,
                  std::vector<float>& logits, Result& result) {
  const std::int64_t vocabulary = open.model().description().vocabulary;
  const SequenceWork first{0, tokens.first(kFirstScored), LogitsOf::kNone};
  sequences.run(std::span(&first, 1), {});
  const SequenceWork second{0, tokens.subspan(kFirstScored), LogitsOf::kAll};
  sequences.run(std::span(&second, 1), {logits.data(), kWindow - kFirstScored, vocabulary});
  for (std::int64_t i = kFirstScored; i + 1 < kWindow; ++i) {
    const auto row = std::span<const float>(logits).subspan(
        static_cast<std::size_t>((i - kFirstScored) * vocabulary), static_cast<std::size_t>(vocabulary));
    const TokenId next = tokens[static_cast<std::size_t>(i + 1)];
    const double nll = static_cast<double>(kernels::log_sum_exp(open.context(), row)) -
                       static_cast<double>(row[static_cast<std::size_t>(next)]);
    result.nll += nll;
    result.nll_squared += nll * nll;
    ++result.scored;
  }
}

Expected<Result> measure(OpenModel& open, Text text, const PerplexityFlags& flags) {
  const std::int64_t vocabulary = open.model().description().vocabulary;
  for (const TokenId id : text.ids) {
    if (id < 0 || id >= vocabulary) {
      return Status(ErrorCode::kCorrupt, fmt::format("{}: the tokenizer gives id {}, the model has {} tokens",
                                                     flags.model.model, id, vocabulary));
    }
  }
  std::int64_t windows = static_cast<std::int64_t>(text.ids.size()) / kWindow;
  if (flags.windows > 0) windows = std::min(windows, flags.windows);
  Sequences sequences(open.model(), open.kv_dtype());
  std::vector<float> logits(static_cast<std::size_t>((kWindow - kFirstScored) * vocabulary));
  ProgressLine progress("scoring");
  Result result;
  result.windows = windows;
  const TimePoint begin = now();
  for (std::int64_t window = 0; window < windows; ++window) {
    SHOAL_TRY(sequences.reset(1, kWindow));
    const auto tokens = std::span(text.ids).subspan(static_cast<std::size_t>(window * kWindow), kWindow);
    if (text.begin_token) tokens[0] = text.bos;
    score_window(open, sequences, tokens, logits, result);
    progress.show(static_cast<std::uint64_t>(window + 1), static_cast<std::uint64_t>(windows));
  }
  result.seconds = seconds_between(begin, now());
  return result;
}

int run_perplexity(const PerplexityFlags& flags) {
  auto text = tokenise(flags);
  if (!text) return complain("perplexity", text.error());
  auto open = OpenModel::open(flags.model);
  if (!open) return complain("perplexity", open.error());
  auto result = measure(**open, std::move(*text), flags);
  if (!result) return complain("perplexity", result.error());
  if (flags.json) {
    const nlohmann::ordered_json json{{"perplexity", result->perplexity()}, {"error", result->error()},
                                      {"mean_nll", result->mean()},         {"windows", result->windows},
                                      {"scored", result->scored},           {"seconds", result->seconds}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("perplexity {:.4f} +- {:.4f} over {} tokens of {} windows ({:.1f} s)\n", result->perplexity(),
               result->error(), result->scored, result->windows, result->seconds);
  }
  return 0;
}

}  // namespace

void add_perplexity(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand(
      "perplexity",
      "How well a model predicts a text: windows of 512 tokens, the second half of each scored");
  add_model_flags(*command, flags->model);
  command->add_option("FILE", flags->file, "The text")->required();
  command->add_option("--windows", flags->windows, "Score only the first N windows")
      ->check(CLI::Range(1, 1 << 30));
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &exit_code] { exit_code = run_perplexity(*flags); });
}

}  // namespace shoal::cli
