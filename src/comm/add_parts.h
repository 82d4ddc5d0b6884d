// The arithmetic of sums over ranks: parts added left to right, the same way wherever it is done.
//
// Thread-safety: pure function.

#pragma once

#include <cstdint>
#include <span>

namespace shoal::comm {

// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + ... for i in [0, n). out may be one of the parts, at
// the same place.
void add_parts(std::span<const float* const> parts, std::int64_t n, float* out);
// The same into several places at once; each may be one of the parts.
void add_parts(std::span<const float* const> parts, std::int64_t n, std::span<float* const> outs);

}  // namespace shoal::comm
