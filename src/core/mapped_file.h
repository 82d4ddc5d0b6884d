// A file mapped read-only into memory.
//
// Thread-safety: const after opening; any thread may read.
// Ownership: owns the mapping and the open file; views into bytes() must not outlive it.
// Invariants: bytes() never changes length. A file cut short by someone else while mapped raises SIGBUS on
//   access, as with every mapping: model files are not edited in place.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/expected.h"

namespace shoal {

class MappedFile {
 public:
  // Fails with kNotFound or kIo, naming the path and the system's reason. An empty file maps to no bytes.
  static Expected<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // When its bytes were last changed, as of now: nanoseconds since 1970; 0 where the system does not say.
  std::int64_t changed() const;

  // Tells the kernel that this range will not be read again soon, so that packed weights and their source
  // are not both resident.
  void drop(std::size_t offset, std::size_t length) const;

  // From here on pages of the mapping are read alone when they are touched, not with up to megabytes around
  // them; who wants more of them asks for it.
  void expect_random() const;
  // Asks the system to read a range, now and beside whatever this thread does next.
  void will_need(std::size_t offset, std::size_t length) const;

  // Asks for huge pages, for a file whose mapping is read again and again: where the page cache holds 2 MiB
  // of it together, one entry of the page table serves them all.
  void prefer_huge_pages() const;
  // Makes the file's time of change now, where this process may: for who cleans up by it.
  void touch() const;

  // Copies [offset, offset + out.size()) into memory without touching the mapping. Bytes come through the
  // page cache, or with `around_cache` straight from the disk where the file system can (O_DIRECT): then out
  // must lie at the same place in a page of 4096 bytes as `offset`, and the rest of its first and last page
  // are overwritten. Fails with kIo, also where the file has been cut short.
  Status read(std::size_t offset, std::span<std::byte> out, bool around_cache) const;

 private:
  MappedFile(std::filesystem::path path, int fd, const std::byte* data, std::size_t size);

  std::filesystem::path path_;
  int fd_ = -1;
  int direct_fd_ = -1;  // for reads around the page cache; -1 where the file system has none
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace shoal
