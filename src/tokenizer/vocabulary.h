// A checked vocabulary: names, kinds and special ids of its tokens.
//
// Thread-safety: never changes once built.
// Ownership: owns all of it; views given out live as long as the object, also after it was moved.
// Invariants: ids run from 0 to size() - 1; names are unique and not empty; every special id is one of them.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "tokenizer/vocabulary_spec.h"

namespace shoal::tokenizer {

class Vocabulary {
 public:
  // Flags of a token; a control token may be user-defined as well.
  enum Kind : std::uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 4,
    kUserDefined = 8,
    kUnused = 16,
    kByte = 32,
    kStripRight = 64,  // takes the white space behind it along
  };

  // Fails with kCorrupt, naming the file and what contradicts what. Tokens that end an answer by their name
  // ("<|im_end|>") are control tokens here even where the file calls them normal.
  static Expected<Vocabulary> build(VocabularySpec spec);

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_->size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  const std::string& token(TokenId id) const { return (*tokens_)[id]; }
  std::uint8_t kind(TokenId id) const { return kinds_[id]; }
  // The byte of a kByte token.
  std::uint8_t byte_of(TokenId id) const;
  // Empty where the file has none.
  const std::vector<float>& scores() const { return scores_; }
  std::optional<TokenId> find(std::string_view token) const;

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  std::optional<TokenId> unknown() const { return unknown_; }
  bool ends_generation(TokenId id) const { return contains(id) && ends_[id]; }

 private:
  Vocabulary() = default;
  Status check_sizes(const VocabularySpec& spec) const;
  Status set_kinds(const VocabularySpec& spec);
  Status index_tokens(const VocabularySpec& spec);
  Status set_ids(const VocabularySpec& spec);
  void set_generation_ends(const VocabularySpec& spec);
  void set_family_quirks(const VocabularySpec& spec);

  std::unique_ptr<std::vector<std::string>> tokens_;  // fixed in memory: index_ points into it
  std::unordered_map<std::string_view, TokenId> index_;
  std::vector<std::uint8_t> kinds_;
  std::vector<float> scores_;
  std::vector<bool> ends_;
  std::optional<TokenId> bos_, eos_, unknown_;
};

}  // namespace shoal::tokenizer
