// Views of row-major matrices: a pointer, rows, columns and a stride. They own nothing.
//
// Thread-safety: values; the bytes they show belong to someone else.
// Invariants: stride >= columns, in elements. No alignment is promised; kernels load unaligned.

#pragma once

#include <cstdint>

namespace shoal {

template <typename T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* d, std::int64_t r, std::int64_t c) : MatrixView(d, r, c, c) {}
  MatrixView(T* d, std::int64_t r, std::int64_t c, std::int64_t s)
      : data(d), rows(r), columns(c), stride(s) {}
  operator MatrixView<const T>() const { return {data, rows, columns, stride}; }

  T* row(std::int64_t r) const { return data + r * stride; }
};

}  // namespace shoal
