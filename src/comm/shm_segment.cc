#include "comm/shm_segment.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>

namespace shoal::comm {

std::uint64_t ShmLayout::shape() const {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over the fields
  const auto mix = [&](std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (value >> (8 * byte) & 0xff)) * 0x100000001b3;
  };
  mix(2);  // version of this layout
  mix(static_cast<std::uint64_t>(ranks));
  mix(static_cast<std::uint64_t>(lanes));
  mix(piece_bytes);
  mix(ring_bytes);
  mix(arena_bytes);
  for (const auto& group : groups) {
    mix(group.size());
    for (const std::int32_t rank : group) mix(static_cast<std::uint64_t>(rank));
  }
  return hash;
}

Expected<std::shared_ptr<ShmSegment>> ShmSegment::map(int fd, ShmLayout layout) {
  const std::size_t bytes = layout.total();
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const Status status(ErrorCode::kExhausted, fmt::format("{} bytes of shared memory cannot be mapped: {}",
                                                           bytes, std::strerror(errno)));
    ::close(fd);
    return status;
  }
  return std::shared_ptr<ShmSegment>(new ShmSegment(std::move(layout), fd, static_cast<std::byte*>(base)));
}

Expected<std::shared_ptr<ShmSegment>> ShmSegment::create(ShmLayout layout) {
  const int fd = ::memfd_create("shoal", MFD_CLOEXEC);
  if (fd < 0) return Status(ErrorCode::kIo, fmt::format("no shared memory file: {}", std::strerror(errno)));
  if (::ftruncate(fd, static_cast<off_t>(layout.total())) != 0) {
    const Status status(ErrorCode::kExhausted, fmt::format("{} bytes of shared memory cannot be had: {}",
                                                           layout.total(), std::strerror(errno)));
    ::close(fd);
    return status;
  }
  SHOAL_ASSIGN(segment, map(fd, std::move(layout)));
  segment->header().shape = segment->layout().shape();
  return segment;
}

Expected<std::shared_ptr<ShmSegment>> ShmSegment::attach(int fd, ShmLayout layout) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || static_cast<std::size_t>(info.st_size) != layout.total()) {
    ::close(fd);
    return Status(ErrorCode::kCorrupt,
                  fmt::format("the shared memory has {} bytes where the layout has {}: the ranks are not "
                              "from one build",
                              info.st_size, layout.total()));
  }
  SHOAL_ASSIGN(segment, map(fd, std::move(layout)));
  if (segment->header().shape != segment->layout().shape())
    return Status(ErrorCode::kCorrupt,
                  "the shared memory has another shape than this rank expects: the ranks are not from one "
                  "build");
  return segment;
}

ShmSegment::~ShmSegment() {
  ::munmap(base_, layout_.total());
  ::close(fd_);
}

void ShmSegment::abort(const std::string& reason) const {
  SegmentHeader& at = header();
  std::uint32_t unclaimed = 0;
  if (at.claimed.compare_exchange_strong(unclaimed, 1, std::memory_order_acq_rel)) {
    const std::size_t length = std::min(reason.size(), std::size(at.reason) - 1);  // its end is zero already
    for (std::size_t i = 0; i < length; ++i) at.reason[i].store(reason[i], std::memory_order_relaxed);
  } else {
    // The other writes for less than a microsecond, unless it is gone.
    for (int i = 0; i < 100 && !aborted(); ++i) std::this_thread::yield();
  }
  at.aborted.store(1, std::memory_order_release);
}

std::string ShmSegment::abort_reason() const {
  std::string reason;
  if (!aborted()) return reason;
  for (const std::atomic<char>& each : header().reason) {
    const char c = each.load(std::memory_order_relaxed);
    if (c == 0) break;
    reason += c;
  }
  return reason.empty() ? "another rank gave up" : reason;
}

}  // namespace shoal::comm
