// Writes a GGUF file (version 3): metadata and a tensor table first, then the tensors' bytes as a stream, so
// that a model larger than memory can be written.
//
// Use: add every key and every tensor, then begin(), then write() each tensor's bytes in the order of
// addition (in pieces of any size; padding between tensors is the writer's), then finish().
// Thread-safety: none.
// Ownership: owns the open file. What is written goes to PATH.part, which finish() renames to PATH: a file of
//   that name is always whole. Without finish() the destructor removes the part.
// Errors: every failure is kept and returned by begin(), write() and finish(); kInvalidArgument for misuse (a
//   key twice, rows that are no whole blocks, too many or too few bytes), kIo with the system's reason.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "core/expected.h"
#include "formats/gguf_value.h"
#include "tensor/dtype.h"

namespace shoal::formats {

class GgufWriter {
 public:
  // alignment: of tensor data; a power of two of at least 8. Anything but 32 is also written as metadata.
  explicit GgufWriter(std::filesystem::path path, std::uint32_t alignment = 32);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  void add_uint32(std::string_view key, std::uint32_t value) { add_scalar(key, GgufType::kUint32, value); }
  void add_int32(std::string_view key, std::int32_t value) { add_scalar(key, GgufType::kInt32, value); }
  void add_uint64(std::string_view key, std::uint64_t value) { add_scalar(key, GgufType::kUint64, value); }
  void add_float32(std::string_view key, float value) { add_scalar(key, GgufType::kFloat32, value); }
  void add_bool(std::string_view key, bool value) {
    add_scalar(key, GgufType::kBool, static_cast<std::uint8_t>(value));
  }
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_int32s(std::string_view key, std::span<const std::int32_t> values);
  void add_float32s(std::string_view key, std::span<const float> values);
  // A value as it stands in another file.
  void add_value(std::string_view key, const GgufValue& value);

  // dims: 1 to 4, the length of a row first.
  void add_tensor(std::string_view name, DType type, std::span<const std::int64_t> dims);

  // Bytes of tensor data that the table promises, padding included.
  std::uint64_t data_bytes() const { return data_bytes_; }

  Status begin();
  Status write(std::span<const std::byte> bytes);
  Status finish();

 private:
  struct Slot {
    std::string name;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  void key(std::string_view name, GgufType type);
  template <typename T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put_text(std::string_view text);
  void put_bytes(std::span<const std::byte> bytes) {
    metadata_.insert(metadata_.end(), bytes.begin(), bytes.end());
  }
  template <typename T>
  void add_scalar(std::string_view name, GgufType type, T value) {
    key(name, type);
    put(value);
  }
  void fail(ErrorCode code, std::string message);
  Status write_all(std::span<const std::byte> bytes);
  Status pad_to(std::uint64_t position);

  std::filesystem::path path_;
  std::filesystem::path part_;
  std::uint32_t alignment_;
  std::vector<std::byte> metadata_;
  std::vector<std::byte> table_;
  std::uint64_t entries_ = 0;
  std::unordered_set<std::string> names_;  // keys and tensors, prefixed apart
  std::vector<Slot> slots_;
  std::uint64_t data_bytes_ = 0;

  int fd_ = -1;
  std::size_t current_ = 0;     // slot that the next byte belongs to
  std::uint64_t position_ = 0;  // in the data
  Status status_;
};

}  // namespace shoal::formats
