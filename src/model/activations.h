// Scratch for the activations of one forward pass: one region, handed out front to back, reused by every
// pass.
//
// Thread-safety: none; belongs to the executor thread.
// Ownership: owns the memory; views die with the next begin().
// Invariants: it only grows. Views of one pass do not overlap; rows start on 64-byte borders.

#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/buffer.h"
#include "tensor/matrix.h"

namespace shoal::model {

class Activations {
 public:
  // Of rows of so many values, in values.
  static std::int64_t stride_of(std::int64_t columns);
  // What take(rows, columns) will use.
  static std::size_t bytes_for(std::int64_t rows, std::int64_t columns);

  // Starts a pass that takes at most `bytes`. Throws std::bad_alloc where the system has no more memory.
  void begin(std::size_t bytes);
  // [rows, columns]; what it held before is undefined.
  MatrixView<float> take(std::int64_t rows, std::int64_t columns);

 private:
  Buffer buffer_;
  std::size_t used_ = 0;
};

}  // namespace shoal::model
