// The added tokens of a tokenizer.json: found in a text before anything else happens to it, longest first at
// each place.
//
// Thread-safety: never changes once parsed.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/hf_normalizer.h"
#include "tokenizer/special_tokens.h"

namespace shoal::tokenizer {

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool special = false;
  bool normalized = false;  // searched for in the normalized text, itself normalized
  bool single_word = false;
  bool strip_left = false, strip_right = false;
};

class HfAddedTokens {
 public:
  // tokens: the "added_tokens" list; absent means none.
  static Expected<HfAddedTokens> parse(JsonElement root, std::string_view source,
                                       const HfNormalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Splits by the tokens that are searched for in raw (normalized) text. Special ones only with
  // parse_special.
  std::vector<Fragment> split_raw(std::string_view text, bool parse_special) const {
    return split(raw_, text, parse_special);
  }
  std::vector<Fragment> split_normalized(std::string_view text, bool parse_special) const {
    return split(normalized_, text, parse_special);
  }

 private:
  std::vector<Fragment> split(const ByteTrie& trie, std::string_view text, bool parse_special) const;

  std::vector<AddedToken> tokens_;
  ByteTrie raw_, normalized_;  // values are indices into tokens_
};

}  // namespace shoal::tokenizer
