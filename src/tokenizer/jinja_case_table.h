// Unicode's one-to-one case mappings above ASCII, as sorted runs.
//
// Thread-safety: constant data.
// Invariants: runs are sorted by `first` and do not overlap.

#pragma once

#include <cstdint>
#include <span>

namespace shoal::tokenizer::jinja {

// Every stride-th code point from first to last maps to itself plus delta.
struct CaseRun {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t stride;
  std::int32_t delta;
};

std::span<const CaseRun> upper_runs();
std::span<const CaseRun> lower_runs();

}  // namespace shoal::tokenizer::jinja
