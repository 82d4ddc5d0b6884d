// A rank's part of one weight matrix, as views of the model file.
//
// Thread-safety: pure functions.
// Ownership: slices show bytes of the mapped file and must not outlive it.
// Errors: kUnsupported where a cut falls inside 32 columns of a quantised type; the caller adds file and
//   tensor.

#pragma once

#include "core/expected.h"
#include "formats/gguf_file.h"
#include "kernels/matmul.h"
#include "parallel/shard.h"

namespace shoal::parallel {

// Rows [rows.begin, rows.end) of a matrix: the outputs of a column-parallel layer.
kernels::WeightSource row_slice(const formats::GgufTensor& tensor, IndexRange rows);

// Columns [columns.begin, columns.end): the inputs of a row-parallel layer. Of types in wider blocks the first
// and the last block may be cut.
Expected<kernels::WeightSource> column_slice(const formats::GgufTensor& tensor, IndexRange columns);

}  // namespace shoal::parallel
