#include "cli/bench_tokenizer.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "core/clock.h"
#include "core/mapped_file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace shoal::cli {
namespace {

using nlohmann::ordered_json;
using tokenizer::Tokenizer;

struct TokenizerFlags {
  std::string model;
  std::string text;
  std::size_t piece = 2048;
  int repeat = 5;
  bool json = false;
};

// Pieces of at most `most` bytes that end with whole characters.
std::vector<std::string_view> cut(std::string_view text, std::size_t most) {
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    while (at < text.size() && at + tokenizer::utf8_length(text[at]) - begin <= most)
      at += tokenizer::utf8_length(text[at]);
    pieces.push_back(text.substr(begin, at - begin));
  }
  return pieces;
}

struct Turn {
  double encode_whole = 0;  // MB/s
  double encode_pieces = 0;
  double decode_stream = 0;  // of the pieces' ids, one at a time
  std::size_t tokens = 0;    // of the whole text
};

Expected<Turn> measure(const std::shared_ptr<const Tokenizer>& of, std::string_view text,
                       const std::vector<std::string_view>& pieces) {
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  Turn turn;
  const TimePoint begin = now();
  SHOAL_ASSIGN(whole, of->encode(text));
  const TimePoint encoded = now();
  std::vector<std::vector<TokenId>> ids;
  ids.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    SHOAL_ASSIGN(one, of->encode(piece));
    ids.push_back(std::move(one));
  }
  const TimePoint in_pieces = now();
  std::size_t bytes = 0;
  for (const auto& one : ids) {
    tokenizer::Detokenizer stream(of, false);
    for (const TokenId id : one) bytes += stream.push(id).size();
    bytes += stream.finish().size();
  }
  turn.tokens = whole.size();
  turn.encode_whole = megabytes / seconds_between(begin, encoded);
  turn.encode_pieces = megabytes / seconds_between(encoded, in_pieces);
  turn.decode_stream = static_cast<double>(bytes) / 1e6 / seconds_between(in_pieces, now());
  return turn;
}

int run_tokenizer(const TokenizerFlags& flags) {
  const auto opened = Tokenizer::load(flags.model);
  if (!opened) return complain("bench tokenizer", opened.error(), 1);
  const auto file = MappedFile::open(flags.text);
  if (!file) return complain("bench tokenizer", file.error(), 1);
  const std::string text =
      tokenizer::to_valid_utf8({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
  const auto pieces = cut(text, std::max<std::size_t>(flags.piece, 4));
  std::vector<double> whole, in_pieces, decoded;
  std::size_t tokens = 0;
  for (int i = 0; i < flags.repeat; ++i) {
    const auto turn = measure(*opened, text, pieces);
    if (!turn) return complain("bench tokenizer", turn.error(), 1);
    whole.push_back(turn->encode_whole);
    in_pieces.push_back(turn->encode_pieces);
    decoded.push_back(turn->decode_stream);
    tokens = turn->tokens;
  }
  const ordered_json report = {{"bench", "tokenizer"},
                               {"machine", machine_facts()},
                               {"params",
                                {{"model", flags.model},
                                 {"bytes", text.size()},
                                 {"piece", flags.piece},
                                 {"tokens", tokens},
                                 {"repeat", flags.repeat}}},
                               {"median",
                                {{"encode_mb_per_s", to_json(spread_of(whole))},
                                 {"encode_pieces_mb_per_s", to_json(spread_of(in_pieces))},
                                 {"decode_stream_mb_per_s", to_json(spread_of(decoded))}}}};
  if (flags.json) {
    fmt::print("{}\n", report.dump(2));
    return 0;
  }
  fmt::print("{} bytes, {} tokens, one thread\n", text.size(), tokens);
  fmt::print("encode, whole        {:8.2f} MB/s\n", spread_of(whole).median);
  fmt::print("encode, pieces       {:8.2f} MB/s\n", spread_of(in_pieces).median);
  fmt::print("decode, id by id     {:8.2f} MB/s\n", spread_of(decoded).median);
  return 0;
}

}  // namespace

void add_bench_tokenizer(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<TokenizerFlags>();
  CLI::App* command =
      bench.add_subcommand("tokenizer", "Megabytes of text a second that one thread encodes and decodes");
  command->add_option("MODEL", flags->model, "GGUF file, or folder with tokenizer.json")->required();
  command->add_option("--text", flags->text, "The text to encode, whole and in pieces")->required();
  command->add_option("--piece", flags->piece, "Bytes of a piece")
      ->check(CLI::Range(std::size_t{4}, std::size_t{1} << 30))
      ->capture_default_str();
  command->add_option("--repeat", flags->repeat, "Runs; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &exit_code] { exit_code = run_tokenizer(*flags); });
}

}  // namespace shoal::cli
