// The tokenizer that a synthetic model carries: made here, small, and working with clients as a real one
// would.
//
// Byte-level BPE: ids 0-255 are the bytes, then four special tokens, the products of a few merges, and
// "<filler_N>" up to the vocabulary's size. Any text encodes and decodes back; a filler is never encoded to,
// and decodes to its name.
//
// Thread-safety: pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"

namespace shoal::formats {

inline constexpr std::int64_t kSynthBos = 256;
inline constexpr std::int64_t kSynthEos = 257;
inline constexpr std::int64_t kSynthTurnStart = 258;
inline constexpr std::int64_t kSynthTurnEnd = 259;
// Bytes, special tokens and merges.
inline constexpr std::int64_t kSynthSmallestVocab = 288;

struct SynthTokenizer {
  std::vector<std::string> tokens;    // by id
  std::vector<std::string> specials;  // tokens[kSynthBos] and those behind it
  std::vector<std::string> merges;    // "left right"
  std::string chat_template;
};
SynthTokenizer make_synth_tokenizer(std::int64_t vocab);

// Adds tokenizer.* for a vocabulary of exactly `vocab` tokens, at least kSynthSmallestVocab.
void add_synth_tokenizer(GgufWriter& writer, std::int64_t vocab);

}  // namespace shoal::formats
