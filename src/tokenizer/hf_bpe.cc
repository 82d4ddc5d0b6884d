#include "tokenizer/hf_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/in_quotes.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {

Expected<HfBpe> HfBpe::parse(JsonElement model, std::string_view source, bool byte_level) {
  // Files older than the field are BPE where they have merges.
  const std::string type = json_string(model, "type", json_has(model, "merges") ? "BPE" : "");
  if (type != "BPE") {
    return hf_unsupported(source, "model " + in_quotes(type) + " is not supported; known: BPE");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json_string(model, affix).empty()) return hf_unsupported(source, std::string("BPE with ") + affix);
  }
  HfBpe bpe;
  bpe.byte_level_ = byte_level;
  bpe.byte_fallback_ = json_bool(model, "byte_fallback", false);
  bpe.fuse_unknown_ = json_bool(model, "fuse_unk", false);
  bpe.ignore_merges_ = json_bool(model, "ignore_merges", false);
  SHOAL_TRY(bpe.read_vocabulary(model, source));
  SHOAL_TRY(bpe.read_merges(model, source));
  if (const std::string unknown = json_string(model, "unk_token"); !unknown.empty()) {
    const auto id = bpe.find(unknown);
    if (!id) return hf_corrupt(source, "unk_token " + in_quotes(unknown) + " is not in the vocabulary");
    bpe.unknown_ = *id;
  }
  bpe.make_byte_tables();
  return bpe;
}

std::optional<TokenId> HfBpe::find(std::string_view token) const {
  const auto at = ids_.find(std::string(token));
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

Status HfBpe::read_vocabulary(JsonElement model, std::string_view source) {
  simdjson::dom::object vocabulary;
  if (model["vocab"].get(vocabulary)) return hf_corrupt(source, "the model has no vocab");
  ids_.reserve(vocabulary.size() * 2);
  for (const auto& [name, value] : vocabulary) {
    std::int64_t id = -1;
    if (value.get(id) || id < 0 || id > std::numeric_limits<TokenId>::max()) {
      return hf_corrupt(source, "token " + in_quotes(name) + " has no valid id");
    }
    if (!ids_.emplace(name, static_cast<TokenId>(id)).second) {
      return hf_corrupt(source, "token " + in_quotes(name) + " stands in the vocabulary twice");
    }
  }
  if (ids_.empty()) return hf_corrupt(source, "the vocabulary has no tokens");
  return {};
}

Status HfBpe::read_merges(JsonElement model, std::string_view source) {
  simdjson::dom::array merges;
  if (model["merges"].get(merges)) return hf_corrupt(source, "the model has no merges");
  merges_ = MergeTable(ids_.size());
  std::int32_t rank = 0;
  for (const JsonElement merge : merges) {
    std::string_view left, right, line;
    simdjson::dom::array pair;
    if (merge.get(line) == simdjson::SUCCESS) {
      const std::size_t space = line.find(' ');
      if (space != std::string_view::npos) left = line.substr(0, space), right = line.substr(space + 1);
    } else if (merge.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
      if (pair.at(0).get(left) || pair.at(1).get(right)) left = right = {};
    }
    if (left.empty() || right.empty()) {
      return hf_corrupt(source, "merge " + std::to_string(rank) + " is not a pair of tokens");
    }
    const auto left_id = find(left), right_id = find(right);
    const auto result = find(std::string(left) + std::string(right));
    if (!left_id || !right_id || !result) {
      return hf_corrupt(source, "merge " + std::to_string(rank) + ", " + in_quotes(left) + " and " +
                                    in_quotes(right) + ", names a token that is not in the vocabulary");
    }
    merges_.add(*left_id, *right_id, rank++, *result);
  }
  return {};
}

void HfBpe::make_byte_tables() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = byte_level_ ? std::string(byte_character(static_cast<std::uint8_t>(byte)))
                                         : fmt::format("<0x{:02X}>", byte);
    bytes_[byte] = find(name).value_or(byte_level_ ? unknown_ : kNoToken);
  }
  if (!ignore_merges_) return;
  for (const auto& [name, id] : ids_) {
    if (!byte_level_) {
      words_.emplace(name, id);
    } else if (auto word = decode_byte_level_strict(name)) {
      words_.emplace(std::move(*word), id);
    }
  }
}

void HfBpe::symbols_of(std::string_view word, std::vector<TokenId>& symbols) const {
  if (byte_level_) {
    for (const char c : word) symbols.push_back(bytes_[static_cast<std::uint8_t>(c)]);
    std::erase(symbols, kNoToken);
    return;
  }
  bool after_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, utf8_length(word[at]));
    at += character.size();
    if (const auto id = find(character)) {
      symbols.push_back(*id);
      after_unknown = false;
      continue;
    }
    const auto byte_id = [&](char c) { return bytes_[static_cast<std::uint8_t>(c)]; };
    if (byte_fallback_ &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) != kNoToken; })) {
      for (const char c : character) symbols.push_back(byte_id(c));
      after_unknown = false;
    } else if (unknown_ != kNoToken && !(fuse_unknown_ && after_unknown)) {
      symbols.push_back(unknown_);
      after_unknown = true;
    }
  }
}

void HfBpe::encode(std::string_view word, std::vector<TokenId>& out) const {
  if (ignore_merges_) {
    if (const auto whole = words_.find(std::string(word)); whole != words_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  symbols_of(word, symbols);
  merges_.merge(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

}  // namespace shoal::tokenizer
