// One tensor of a model as a file holds it, under the name this program knows it by.
//
// Thread-safety: a value.
// Ownership: owns nothing; names and bytes belong to the file, or to the table that gave the name.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace shoal::formats {

struct ModelTensor {
  std::string_view name;  // GGUF's, whatever the file's format: "blk.0.attn_q.weight"
  DType type = DType::kF32;
  int n_dims = 0;
  // dims[0] is the length of a row, the rest count rows. Unused ones are 1.
  std::array<std::int64_t, 4> dims{1, 1, 1, 1};
  std::span<const std::byte> bytes;
  // Which file of the model holds it: an index into TensorTable::files().
  std::int32_t file = 0;

  std::int64_t row_length() const { return dims[0]; }
  std::int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  std::int64_t elements() const { return dims[0] * rows(); }
};

}  // namespace shoal::formats
