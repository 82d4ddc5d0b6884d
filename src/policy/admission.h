// Whether a waiting request may start: its pages must fit beside what the running ones still need.
//
// Thread-safety: admits() is pure; OutputLengths belongs to the engine thread.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shoal::policy {

// How long answers turned out lately: what a request that allows 4,096 tokens will really need.
//
// Invariants: keeps the last kKept lengths; expect() lies in (generated, max_tokens] while generated <
//   max_tokens.
class OutputLengths {
 public:
  static constexpr std::size_t kKept = 256;

  // A choice ended by itself or at its limit, after this many tokens.
  void add(std::int32_t length);
  // Expected tokens in all of an answer that has `generated` so far: the length that three quarters of those
  // that came this far stayed within; half of what is left to max_tokens while fewer than 8 are known.
  std::int32_t expect(std::int32_t generated, std::int32_t max_tokens) const;

 private:
  std::vector<std::int32_t> recent_;  // ring
  std::size_t next_ = 0;
  std::vector<std::int32_t> sorted_;
};

// In pages of one pool.
struct PoolDemand {
  std::int64_t available = 0;  // free, or cached and not about to be used by the request itself
  std::int64_t promised = 0;   // what the running sequences are still expected to take
  std::int64_t needed = 0;     // the request's prompt beyond the cache and its expected growth
};

struct AdmissionInput {
  std::int32_t running = 0;
  std::int32_t max_running = 0;
  std::span<const PoolDemand> pools;
};

// With nothing running the answer is yes: what could never fit was refused when it came (docs/execution.md
// R1).
bool admits(const AdmissionInput& input);

}  // namespace shoal::policy
