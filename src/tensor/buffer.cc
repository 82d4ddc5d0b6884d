#include "tensor/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace shoal {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmallPage = 4096;
}  // namespace

Expected<Buffer> Buffer::allocate(std::size_t bytes, const char* what) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  const std::size_t page = bytes >= kHugePage ? kHugePage : kSmallPage;
  // Half as much again as the largest address space would still overflow the rounding below.
  if (bytes > (std::size_t{1} << 46)) {
    return Status(ErrorCode::kExhausted, fmt::format("no memory for {}: {} bytes asked", what, bytes));
  }
  const std::size_t rounded = (bytes + page - 1) / page * page;
  const std::size_t mapped = page == kHugePage ? rounded + kHugePage : rounded;
  void* base =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Status(ErrorCode::kExhausted, fmt::format("no memory for {}: {} bytes asked, the system says {}",
                                                     what, bytes, std::strerror(errno)));
  }
  auto* begin = static_cast<std::byte*>(base);
  if (page == kHugePage) {
    // Give back the unaligned head and tail, so that the whole buffer can be huge pages.
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::size_t head = (kHugePage - address % kHugePage) % kHugePage;
    if (head > 0) ::munmap(begin, head);
    begin += head;
    if (const std::size_t tail = mapped - head - rounded; tail > 0) ::munmap(begin + rounded, tail);
    ::madvise(begin, rounded, MADV_HUGEPAGE);  // best effort: 8 to 12 % of decode speed where given
    // A last page that would be mostly empty is not worth that: a model of 1B parameters has 65 matrices, which
    // would take 60 MB more than their bytes.
    if (rounded - bytes > kHugePage / 2)
      ::madvise(begin + rounded - kHugePage, kHugePage, MADV_NOHUGEPAGE);
  }
  buffer.data_ = begin;
  buffer.size_ = bytes;
  buffer.mapped_ = rounded;
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

}  // namespace shoal
