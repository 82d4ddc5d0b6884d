// The ring of bytes from one rank to another in shared memory, as each end sees it.
//
// Thread-safety: one sender thread and one receiver thread.
// Ownership: borrows the segment.
// Invariants: read <= written <= read + capacity; both only grow. The sender stores bytes, then `written`;
//   the receiver loads `written`, then bytes, then stores `read`.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "comm/shm_segment.h"

namespace shoal::comm {

class ShmRing {
 public:
  ShmRing(const ShmSegment& segment, std::int32_t from, std::int32_t to)
      : header_(*segment.at<RingHeader>(segment.layout().ring(from, to))),
        data_(segment.at<std::byte>(segment.layout().ring_data(from, to))),
        capacity_(segment.layout().ring_bytes) {}

  // Sender: bytes that fit now.
  std::size_t room() const {
    return capacity_ - static_cast<std::size_t>(header_.written.load(std::memory_order_relaxed) -
                                                header_.read.load(std::memory_order_acquire));
  }
  // n <= room()
  void push(const std::byte* bytes, std::size_t n) {
    const std::uint64_t written = header_.written.load(std::memory_order_relaxed);
    each_run(written, n, [&](std::size_t at, std::size_t done, std::size_t length) {
      std::memcpy(data_ + at, bytes + done, length);
    });
    header_.written.store(written + n, std::memory_order_release);
  }

  // Receiver: bytes that have arrived.
  std::size_t waiting() const {
    return static_cast<std::size_t>(header_.written.load(std::memory_order_acquire) -
                                    header_.read.load(std::memory_order_relaxed));
  }
  // n <= waiting()
  void pull(std::byte* bytes, std::size_t n) {
    const std::uint64_t read = header_.read.load(std::memory_order_relaxed);
    each_run(read, n, [&](std::size_t at, std::size_t done, std::size_t length) {
      std::memcpy(bytes + done, data_ + at, length);
    });
    header_.read.store(read + n, std::memory_order_release);
  }

 private:
  template <typename F>
  void each_run(std::uint64_t position, std::size_t n, F&& f) const {
    const auto at = static_cast<std::size_t>(position % capacity_);
    const std::size_t first = std::min(n, capacity_ - at);
    if (first > 0) f(at, std::size_t{0}, first);
    if (n > first) f(std::size_t{0}, first, n - first);
  }

  RingHeader& header_;
  std::byte* data_;
  std::size_t capacity_;
};

}  // namespace shoal::comm
