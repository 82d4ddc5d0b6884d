#include "cli/tokenize.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/expected.h"
#include "tokenizer/clean_up_spaces.h"
#include "tokenizer/tokenizer.h"

namespace shoal::cli {
namespace {

using nlohmann::json;
using tokenizer::Tokenizer;

Expected<bool> read_flag(const json& line, const char* name) {
  const auto at = line.find(name);
  if (at == line.end()) return true;
  if (!at->is_boolean())
    return Status(ErrorCode::kInvalidArgument, std::string(name) + " must be true or false");
  return at->get<bool>();
}

Expected<std::vector<TokenId>> encode_line(const Tokenizer& tokenizer, const json& line) {
  const json& text = line["text"];
  if (!text.is_string()) return Status(ErrorCode::kInvalidArgument, "text must be a string");
  SHOAL_ASSIGN(add_special, read_flag(line, "add_special"));
  SHOAL_ASSIGN(parse_special, read_flag(line, "parse_special"));
  return tokenizer.encode(text.get_ref<const std::string&>(), {add_special, parse_special});
}

Expected<std::vector<TokenId>> read_ids(const Tokenizer& tokenizer, const json& line) {
  const json& ids = line["ids"];
  if (!ids.is_array()) return Status(ErrorCode::kInvalidArgument, "ids must be a list of integers");
  std::vector<TokenId> out;
  out.reserve(ids.size());
  for (const json& id : ids) {
    if (!id.is_number_integer()) return Status(ErrorCode::kInvalidArgument, "ids must be a list of integers");
    const auto value =
        id.is_number_unsigned() && id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()
            ? std::int64_t{-1}
            : id.get<std::int64_t>();
    if (value < 0 || value >= tokenizer.vocab_size()) {
      return Status(ErrorCode::kInvalidArgument, "id " + id.dump() + " is outside the vocabulary of " +
                                                     std::to_string(tokenizer.vocab_size()) + " tokens");
    }
    out.push_back(static_cast<TokenId>(value));
  }
  return out;
}

Expected<json> answer(const Tokenizer& tokenizer, const std::string& input) {
  const json line = json::parse(input, nullptr, false);
  if (line.is_discarded()) return Status(ErrorCode::kInvalidArgument, "the line is not valid JSON");
  if (!line.is_object() || line.contains("text") == line.contains("ids")) {
    return Status(ErrorCode::kInvalidArgument, "the line must be an object with either text or ids");
  }
  SHOAL_ASSIGN(ids, line.contains("text") ? encode_line(tokenizer, line) : read_ids(tokenizer, line));
  const auto decode = [&](bool skip_special) {
    std::string text = tokenizer.decode(ids, skip_special);
    return tokenizer.cleans_up_spaces() ? tokenizer::clean_up_spaces(text) : text;
  };
  return json{{"ids", ids}, {"decoded", decode(false)}, {"decoded_skip_special", decode(true)}};
}

}  // namespace

void tokenize_lines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out) {
  for (std::string line; std::getline(in, line);) {
    const auto result = answer(tokenizer, line);
    const json output = result.ok() ? *result : json{{"error", result.error().message()}};
    out << output.dump(-1, ' ', false, json::error_handler_t::replace) << '\n' << std::flush;
  }
}

void add_tokenize(CLI::App& app, int& exit_code) {
  struct Options {
    std::string model;
    bool jsonl = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tokenize", "Turns text into token ids and back, line by line");
  command->add_option("MODEL", options->model, "GGUF file, or folder with tokenizer.json")->required();
  command->add_flag("--jsonl", options->jsonl, "one JSON object a line on standard input and output")
      ->required();
  command->callback([options, &exit_code] {
    const auto tokenizer = Tokenizer::load(options->model);
    if (!tokenizer.ok()) {
      std::fprintf(stderr, "shoal: %s\n", tokenizer.error().message().c_str());
      exit_code = 1;
      return;
    }
    tokenize_lines(**tokenizer, std::cin, std::cout);
    exit_code = 0;
  });
}

}  // namespace shoal::cli
