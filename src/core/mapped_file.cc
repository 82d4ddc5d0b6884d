#include "core/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace shoal {
namespace {

constexpr std::size_t kPage = 4096;

// Reads on from `done` bytes of out; how many there are then. Where there are no more, errno says why, 0 at
// the end of the file.
std::size_t read_some(int fd, std::span<std::byte> out, std::size_t offset, std::size_t done) {
  ssize_t n = 0;
  do {
    errno = 0;
    n = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
  } while (n < 0 && errno == EINTR);
  return n > 0 ? done + static_cast<std::size_t>(n) : done;
}

// By whole pages, straight from the disk; how many bytes of out there are then.
std::size_t read_direct(int fd, std::span<std::byte> out, std::size_t offset) {
  const std::size_t begin = offset / kPage * kPage;
  const std::size_t end = (offset + out.size() + kPage - 1) / kPage * kPage;
  std::byte* at = out.data() + begin - offset;
  if (reinterpret_cast<std::uintptr_t>(at) % kPage != 0) return 0;
  const ssize_t n = ::pread(fd, at, end - begin, static_cast<off_t>(begin));
  const std::size_t reached = n > 0 ? begin + static_cast<std::size_t>(n) : 0;
  return reached > offset ? std::min(reached - offset, out.size()) : 0;
}

}  // namespace

Expected<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // Not blocking: a named pipe would wait here for somebody to write. Regular files do not care.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Status(code, fmt::format("{}: cannot open: {}", path.string(), std::strerror(errno)));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Status(ErrorCode::kIo, fmt::format("{}: not a regular file", path.string()));
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const int reason = errno;
    ::close(fd);
    return Status(ErrorCode::kIo, fmt::format("{}: cannot map: {}", path.string(), std::strerror(reason)));
  }
  return MappedFile(path, fd, static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(std::filesystem::path path, int fd, const std::byte* data, std::size_t size)
    : path_(std::move(path)), fd_(fd), data_(data), size_(size) {
  // By number: the name may belong to another file by now.
  direct_fd_ = ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      direct_fd_(std::exchange(other.direct_fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(direct_fd_, other.direct_fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (direct_fd_ >= 0) ::close(direct_fd_);
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::expect_random() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_), size_, MADV_RANDOM);
}

void MappedFile::will_need(std::size_t offset, std::size_t length) const {
  const std::size_t begin = offset / kPage * kPage;
  // A hint: where it fails, pages are read when they are touched.
  if (begin < size_)
    ::madvise(const_cast<std::byte*>(data_) + begin, std::min(offset + length, size_) - begin, MADV_WILLNEED);
}

void MappedFile::prefer_huge_pages() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_), size_, MADV_HUGEPAGE);
}

std::int64_t MappedFile::changed() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return 0;
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

void MappedFile::touch() const { ::futimens(fd_, nullptr); }

Status MappedFile::read(std::size_t offset, std::span<std::byte> out, bool around_cache) const {
  std::size_t done = 0;
  if (around_cache && direct_fd_ >= 0) done = read_direct(direct_fd_, out, offset);
  while (done < out.size()) {
    const std::size_t more = read_some(fd_, out, offset, done);
    if (more == done) {
      const std::string reason = errno == 0 ? "the file has become shorter" : std::strerror(errno);
      return {ErrorCode::kIo,
              fmt::format("{}: cannot read at byte {}: {}", path_.string(), offset + done, reason)};
    }
    done = more;
  }
  return {};
}

void MappedFile::drop(std::size_t offset, std::size_t length) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = std::min(offset + length, size_) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace shoal
