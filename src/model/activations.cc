#include "model/activations.h"

#include <cassert>
#include <new>

namespace shoal::model {

namespace {
constexpr std::int64_t kRowFloats = 16;  // 64 bytes

}  // namespace

std::int64_t Activations::stride_of(std::int64_t columns) {
  return (columns + kRowFloats - 1) / kRowFloats * kRowFloats;
}

std::size_t Activations::bytes_for(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * stride_of(columns)) * sizeof(float);
}

void Activations::begin(std::size_t bytes) {
  used_ = 0;
  if (bytes <= buffer_.size()) return;
  buffer_ = Buffer();
  auto grown = Buffer::allocate(bytes, "activations");
  if (!grown) throw std::bad_alloc();
  buffer_ = std::move(*grown);
}

MatrixView<float> Activations::take(std::int64_t rows, std::int64_t columns) {
  const std::size_t bytes = bytes_for(rows, columns);
  assert(used_ + bytes <= buffer_.size());
  auto* data = reinterpret_cast<float*>(buffer_.data() + used_);
  used_ += bytes;
  return {data, rows, columns, stride_of(columns)};
}

}  // namespace shoal::model
