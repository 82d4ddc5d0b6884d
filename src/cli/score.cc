#include "cli/score.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "cli/cli_sequences.h"
#include "kernels/sampling_math.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kTop = 20;
// Rows whose logits are held at once: 128 x 128,256 f32 = 66 MB.
constexpr std::size_t kChunk = 128;

struct ScoreFlags {
  ModelFlags model;
  bool jsonl = false;
  std::int64_t greedy = 0;
  std::string logits;
};

Expected<std::vector<TokenId>> parse_line(const std::string& line, std::int64_t vocabulary) {
  const auto bad = [](std::string reason) { return Status(ErrorCode::kInvalidArgument, std::move(reason)); };
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return bad("not a JSON object");
  const auto ids = json.find("ids");
  if (ids == json.end() || !ids->is_array() || ids->empty())
    return bad("ids: a list of token ids is expected");
  std::vector<TokenId> tokens;
  for (const auto& id : *ids) {
    const bool fits =
        id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() < vocabulary;
    if (!fits) return bad(fmt::format("ids: {} is not a token id below {}", id.dump(), vocabulary));
    tokens.push_back(id.get<TokenId>());
  }
  return tokens;
}

class Scorer {
 public:
  Scorer(OpenModel& open, std::ostream* logits_out)
      : open_(open),
        vocabulary_(open.model().description().vocabulary),
        sequences_(open.model(), open.kv_dtype()),
        logits_(kChunk * static_cast<std::size_t>(vocabulary_)),
        logits_out_(logits_out) {}

  Expected<ordered_json> score(const std::vector<TokenId>& tokens, std::int64_t greedy) {
    const std::int64_t context = open_.model().description().context_length;
    const auto length = static_cast<std::int64_t>(tokens.size());
    SHOAL_TRY(sequences_.reset(1, std::max(length, std::min(length + greedy, context))));
    ordered_json answer;
    score_prompt(tokens, answer);
    // The last token needs no place in the context: nothing follows it.
    answer["greedy"] = continue_greedily(std::min(greedy, context - length + 1));
    return answer;
  }

 private:
  std::span<const float> row(std::size_t i) const {
    const auto width = static_cast<std::size_t>(vocabulary_);
    return std::span(logits_).subspan(i * width, width);
  }

  // Leaves the last position's logits in row last_row_.
  void score_prompt(const std::vector<TokenId>& tokens, ordered_json& answer) {
    answer["logprobs"] = ordered_json::array();
    for (std::size_t begin = 0; begin < tokens.size(); begin += kChunk) {
      const std::size_t rows = std::min(kChunk, tokens.size() - begin);
      const SequenceWork work{0, std::span(tokens).subspan(begin, rows), LogitsOf::kAll};
      sequences_.run(std::span(&work, 1), {logits_.data(), static_cast<std::int64_t>(rows), vocabulary_});
      for (std::size_t i = 0; i < rows && begin + i + 1 < tokens.size(); ++i) {
        const float logit = row(i)[static_cast<std::size_t>(tokens[begin + i + 1])];
        answer["logprobs"].push_back(logit - kernels::log_sum_exp(open_.context(), row(i)));
      }
      if (logits_out_ != nullptr) {
        logits_out_->write(reinterpret_cast<const char*>(logits_.data()),
                           static_cast<std::streamsize>(rows * row(0).size_bytes()));
      }
      last_row_ = rows - 1;
    }
    answer["top"] = ordered_json::array();
    for (const auto& candidate : kernels::top_candidates(row(last_row_), kTop)) {
      answer["top"].push_back({candidate.id, candidate.logit});
    }
    answer["logsumexp"] = kernels::log_sum_exp(open_.context(), row(last_row_));
  }

  std::vector<TokenId> continue_greedily(std::int64_t count) {
    std::vector<TokenId> out;
    for (std::int64_t i = 0; i < count; ++i) {
      const TokenId best = kernels::arg_max(open_.context(), row(last_row_));
      out.push_back(best);
      if (i + 1 == count) break;
      const SequenceWork work{0, std::span(&best, 1), LogitsOf::kLast};
      sequences_.run(std::span(&work, 1), {logits_.data(), 1, vocabulary_});
      last_row_ = 0;
    }
    return out;
  }

  OpenModel& open_;
  std::int64_t vocabulary_;
  Sequences sequences_;
  std::vector<float> logits_;
  std::ostream* logits_out_;
  std::size_t last_row_ = 0;
};

int run_score(const ScoreFlags& flags) {
  auto open = OpenModel::open(flags.model);
  if (!open) return complain("score", open.error());
  std::ofstream logits_file;
  if (!flags.logits.empty()) {
    logits_file.open(flags.logits, std::ios::binary | std::ios::trunc);
    if (!logits_file) {
      return complain("score", {ErrorCode::kIo, fmt::format("{}: cannot be written", flags.logits)});
    }
  }
  Scorer scorer(**open, flags.logits.empty() ? nullptr : &logits_file);
  int exit_code = 0;
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    auto tokens = parse_line(line, (*open)->model().description().vocabulary);
    auto answer = tokens ? scorer.score(*tokens, flags.greedy) : Expected<ordered_json>(tokens.error());
    if (!answer) {
      exit_code = 1;
      answer = ordered_json{{"error", fmt::format("line {}: {}", number, answer.error().message())}};
    }
    std::cout << answer->dump() << '\n' << std::flush;
  }
  logits_file.flush();
  if (!flags.logits.empty() && !logits_file) {
    return complain("score", {ErrorCode::kIo, fmt::format("{}: writing failed", flags.logits)});
  }
  return exit_code;
}

}  // namespace

void add_score(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ScoreFlags>();
  CLI::App* command = app.add_subcommand(
      "score", "Log-probabilities, logits and the greedy continuation of token ids read from standard input");
  add_model_flags(*command, flags->model);
  command->add_flag("--jsonl", flags->jsonl, "Read {\"ids\":[...]} lines from standard input")->required();
  command
      ->add_option("--greedy", flags->greedy,
                   "Tokens to continue with, always the likeliest, as far as the context goes")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--logits", flags->logits,
                      "File for the logits of every position: [tokens, vocabulary] f32");
  command->callback([flags, &exit_code] { exit_code = run_score(*flags); });
}

}  // namespace shoal::cli
