// Finds special tokens written in a text, the way GGUF models are used: longer names first, each from the
// left.
//
// Thread-safety: never changes once built.
// Invariants: the fragments of a text, in order, cover it but for spaces that a token takes with it.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/merge_table.h"

namespace shoal::tokenizer {

struct SpecialToken {
  std::string text;
  TokenId id = kNoToken;
  bool control = false;      // found only where special tokens are parsed; others always
  bool strip_right = false;  // takes the ASCII white space behind it with it
};

// Either a token or plain text.
struct Fragment {
  TokenId id = kNoToken;
  std::string_view text;
};

class SpecialTokens {
 public:
  explicit SpecialTokens(std::vector<SpecialToken> tokens = {});

  // The views point into text.
  std::vector<Fragment> partition(std::string_view text, bool parse_special) const;

 private:
  std::vector<SpecialToken> tokens_;  // longest first
  ByteTrie trie_;                     // values are indices into tokens_
};

}  // namespace shoal::tokenizer
