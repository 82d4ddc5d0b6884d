// SentencePiece's table of normalized texts, the `precompiled_charsmap` of a tokenizer.json: a double-array
// trie from texts to texts.
//
// Thread-safety: never changes once parsed.
// Invariants: every index of the trie that find() follows is inside it, whatever the file says.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::tokenizer {

class PrecompiledMap {
 public:
  // bytes: the trie's length in bytes (u32, little-endian), the trie, the texts, each ended by a zero. The
  // error has no file name.
  static Expected<PrecompiledMap> parse(std::string_view bytes);

  // What the shortest entry that `text` starts with stands for; nothing where there is none. That it need not
  // be all of `text` is the reference's behaviour.
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  std::vector<std::uint32_t> trie_;
  std::string texts_;
};

// Nothing for what is not base64.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace shoal::tokenizer
