#include "comm/shm_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace shoal::comm {

void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint deadline) {
  const auto left =
      std::clamp<std::chrono::nanoseconds>(deadline - now(), std::chrono::nanoseconds(1), kLongestSleep);
  const timespec time{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace shoal::comm
