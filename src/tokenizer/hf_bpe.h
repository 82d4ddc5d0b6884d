// The model of a tokenizer.json of type BPE: ids of one word.
//
// Thread-safety: never changes once parsed.
// Ownership: owns its vocabulary; token names given out live as long as it does.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/merge_table.h"

namespace shoal::tokenizer {

class HfBpe {
 public:
  // byte_level: words are bytes that the vocabulary spells with byte_alphabet.h. Fails with kUnsupported for
  // a model that is not BPE, or a BPE with prefixes or suffixes inside words.
  static Expected<HfBpe> parse(JsonElement model, std::string_view source, bool byte_level);

  void encode(std::string_view word, std::vector<TokenId>& out) const;

  const std::unordered_map<std::string, TokenId>& vocabulary() const { return ids_; }
  std::optional<TokenId> find(std::string_view token) const;

 private:
  Status read_vocabulary(JsonElement model, std::string_view source);
  Status read_merges(JsonElement model, std::string_view source);
  void make_byte_tables();
  // The symbols a word starts from: bytes, or characters with byte fallback and the unknown token.
  void symbols_of(std::string_view word, std::vector<TokenId>& symbols) const;

  std::unordered_map<std::string, TokenId> ids_;
  MergeTable merges_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  TokenId unknown_ = kNoToken;
  std::array<TokenId, 256> bytes_{};  // of a byte's character where byte_level_, else of "<0x0A>"
  std::unordered_map<std::string, TokenId>
      words_;  // whole words by what encode() sees, where merges are ignored
};

}  // namespace shoal::tokenizer
