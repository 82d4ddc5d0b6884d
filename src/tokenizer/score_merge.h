// SentencePiece's byte-pair encoding by scores: of all neighbours that together are a piece, the one with the
// highest score is joined first.
//
// Thread-safety: never changes once built.
// Ownership: points into the vocabulary, which must outlive it.

#pragma once

#include <array>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "tokenizer/vocabulary.h"

namespace shoal::tokenizer {

class ScoreMerge {
 public:
  // Control and unknown tokens are never made from plain text.
  explicit ScoreMerge(const Vocabulary& vocabulary);

  // Appends the ids of a text, O(n log n). Characters that are no piece become byte tokens; where there are
  // none, the unknown token, one for a run of such characters, or nothing where there is no unknown token
  // either.
  void encode(std::string_view text, std::vector<TokenId>& out) const;

 private:
  TokenId piece(std::string_view text) const;
  void append_unmerged(std::string_view character, std::vector<TokenId>& out, bool& after_unknown) const;

  std::unordered_map<std::string_view, TokenId> pieces_;
  std::vector<float> scores_;
  std::array<TokenId, 256> bytes_;
  std::size_t longest_ = 0;  // bytes of the longest piece
  TokenId unknown_;
};

}  // namespace shoal::tokenizer
