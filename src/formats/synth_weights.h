// Random weights in any file format, straight into blocks: no float is quantised, so a billion take seconds.
//
// Thread-safety: pure; the bytes of a block depend on (key, block index) alone, so blocks may be filled in
//   any order by any number of threads. What comes out: symmetric about zero with standard deviation sigma,
//   finite, within 3.5 sigma (floats) or 2.2 sigma (quantised: uniform integers under a scale that varies
//   from block to block), every integer one that a quantiser would write.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace shoal::formats {

// One number of the stream `key`, uniform over 64 bits.
std::uint64_t random_word(std::uint64_t key, std::uint64_t counter);

// True for the types fill_random can make.
bool can_synthesise(DType type);

// Fills out, whole blocks of `type`, with the blocks first_block, first_block + 1, ... of stream `key`.
void fill_random(DType type, std::uint64_t key, std::int64_t first_block, float sigma,
                 std::span<std::byte> out);

}  // namespace shoal::formats
