#include "parallel/weight_slice.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::parallel {

kernels::WeightSource row_slice(const formats::GgufTensor& tensor, IndexRange rows) {
  kernels::WeightSource slice;
  slice.type = tensor.type;
  slice.stride = row_bytes(tensor.type, tensor.row_length());
  slice.data = tensor.bytes.data() + rows.begin * slice.stride;
  slice.rows = rows.size();
  slice.columns = tensor.row_length();
  return slice;
}

Expected<kernels::WeightSource> column_slice(const formats::GgufTensor& tensor, IndexRange columns) {
  const std::int64_t block = block_elements(tensor.type);
  const std::int64_t grain = std::min<std::int64_t>(block, 32);
  if (columns.begin % grain != 0 || columns.size() % grain != 0) {
    return Status(ErrorCode::kUnsupported, fmt::format("columns {} to {} cut a {} block of {}", columns.begin,
                                                       columns.end, dtype_name(tensor.type), grain));
  }
  kernels::WeightSource slice = row_slice(tensor, {0, tensor.rows()});
  slice.first_column = columns.begin % block;
  slice.data += row_bytes(tensor.type, columns.begin - slice.first_column);
  slice.columns = columns.size();
  return slice;
}

}  // namespace shoal::parallel
