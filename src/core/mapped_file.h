// A file mapped read-only into memory.
//
// Thread-safety: const after opening; any thread may read.
// Ownership: owns the mapping; views into bytes() must not outlive it.
// Invariants: bytes() never changes length. A file cut short by someone else while mapped raises SIGBUS on
//   access, as with every mapping: model files are not edited in place.

#pragma once

#include <cstddef>
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

  // Tells the kernel that this range will not be read again soon, so that packed weights and their source
  // are not both resident.
  void drop(std::size_t offset, std::size_t length) const;

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace shoal
