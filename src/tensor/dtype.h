// Element types of tensors as model files store them, with the block geometry of the quantised ones.
//
// Thread-safety: pure functions.
// Numbering is GGUF's (ggml_type), so that a file's type id converts by range check alone. Block layouts are
// those of the GGUF format document and ggml's reference quantiser.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shoal {

enum class DType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kI8 = 24,
  kI32 = 26,
  kBF16 = 30,
};

// Nothing where the file's type id is not one of the above.
std::optional<DType> dtype_from_gguf(std::uint32_t type_id);

// "q4_k", "bf16": the spelling of flags, logs and errors.
std::string_view dtype_name(DType type);
std::optional<DType> dtype_from_name(std::string_view name);

// Elements of one block: 1, 32 or 256.
std::int64_t block_elements(DType type);
// Bytes of one block.
std::int64_t block_bytes(DType type);
// Bytes of a row of n elements; n must be a multiple of block_elements.
inline std::int64_t row_bytes(DType type, std::int64_t n) {
  return n / block_elements(type) * block_bytes(type);
}
bool is_quantised(DType type);

}  // namespace shoal
