// Attention as its definition reads, in double precision over whole rows: what the fast kernels are tested
// against. Slow, and used for nothing else.
//
// Thread-safety: pure but for `out`; runs on the calling thread.

#pragma once

#include <span>

#include "kernels/attention.h"

namespace shoal::kernels {

// As attention(): same shapes, same masks, keys and values as the pool holds them.
void attention_reference(const KvView& pool, const AttentionShape& shape,
                         std::span<const AttentionSpan> spans, MatrixView<const float> q,
                         MatrixView<float> out);

}  // namespace shoal::kernels
