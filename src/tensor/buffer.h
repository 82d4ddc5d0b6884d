// Memory for weights, KV pools and activations: aligned, zeroed, in huge pages where the system gives them.
//
// Thread-safety: none; the bytes belong to whoever the owner says.
// Ownership: owns its mapping; moves, never copies.
// Invariants: data() is aligned to 64 bytes (2 MiB for buffers of at least that size), and all bytes read as
//   zero until written. Pages are placed on the NUMA node of the thread that first writes them.

#pragma once

#include <cstddef>
#include <utility>

#include "core/expected.h"

namespace shoal {

class Buffer {
 public:
  Buffer() = default;
  // Fails with kExhausted, naming what it was for and the size. `what`: "packed weights", "KV pool".
  static Expected<Buffer> allocate(std::size_t bytes, const char* what);

  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
};

}  // namespace shoal
