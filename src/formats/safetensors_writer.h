// Writes a safetensors file: the header first, then the tensors' bytes as a stream, so that a model larger
// than memory can be written.
//
// Use: add every tensor, then begin(), then write() their bytes in the order of addition (in pieces of any
// size), then finish().
// Thread-safety: none.
// Ownership: owns the open file. Without finish() the destructor removes it.
// Errors: kInvalidArgument for misuse (a name twice, a type the format lacks, too many or too few bytes), kIo
//   with the system's reason.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "tensor/dtype.h"

namespace shoal::formats {

class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(std::filesystem::path path);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // shape: row-major, the length of a row last. type: f32, f16 or bf16.
  Status add_tensor(std::string_view name, DType type, std::span<const std::int64_t> shape);
  std::uint64_t data_bytes() const { return data_bytes_; }

  Status begin();
  Status write(std::span<const std::byte> bytes);
  Status finish();

 private:
  Status fail(ErrorCode code, std::string_view why) const;

  std::filesystem::path path_;
  nlohmann::ordered_json header_;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t written_ = 0;
  int fd_ = -1;
};

}  // namespace shoal::formats
