// Waiting for a word of shared memory to change: a short spin, then sleep on a futex.
//
// Thread-safety: any number of threads and processes may wait for one word.
// Invariants: a change announced by announce() is never slept through. A sleep lasts at most kLongestSleep
//   before abort word and deadline are looked at again: a waker that died between its store and its wake, or
//   an abort, costs that long.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "comm/shm_segment.h"
#include "core/clock.h"
#include "core/expected.h"

namespace shoal::comm {

inline constexpr std::chrono::milliseconds kLongestSleep{20};

// What a rank is prepared to spend before it sleeps. 2,000 pauses are about 100 us: as long as the slower of
// two ranks usually takes in a layer; spinning then costs nothing over sleeping. 0 where ranks and threads
// are more than cores: whoever spins holds the core that the other needs.
struct Patience {
  int pauses = 2000;
};

// Sleeps while word has this value, until woken or for kLongestSleep.
void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint deadline);
void futex_wake_all(std::atomic<std::uint32_t>& word);

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Stores and wakes whoever sleeps. The store and the look at the sleepers are sequentially consistent, as are
// a sleeper's entry and its last look at the word: one of the two sees the other.
inline void announce(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers,
                     std::uint32_t value) {
  word.store(value, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(word);
}

// Waits until reached(word's value).
template <typename F>
Status wait_for(const ShmSegment& segment, Patience patience, std::atomic<std::uint32_t>& word,
                std::atomic<std::uint32_t>& sleepers, TimePoint deadline, F&& reached) {
  if (reached(word.load(std::memory_order_acquire))) return {};
  for (int i = 0; i < patience.pauses; ++i) {
    cpu_pause();
    if (reached(word.load(std::memory_order_acquire))) return {};
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  for (;;) {
    const std::uint32_t value = word.load(std::memory_order_seq_cst);
    if (reached(value)) break;
    if (segment.aborted()) {
      status = Status(ErrorCode::kUnavailable, segment.abort_reason());
      break;
    }
    if (now() >= deadline) {
      status = Status(ErrorCode::kDeadline, "a rank waited for another until its deadline");
      break;
    }
    futex_sleep(word, value, deadline);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

}  // namespace shoal::comm
