// Takes tensors out of a model's files: packs a rank's part of the matrices, widens the vectors to f32.
//
// Everything is asked for twice in the same order. Before start() the answers have the right sizes and no
// values: the loader notes what a rank needs of which file. After it the files are read in that order, ahead
// of the packer, whatever the layout; or the matrices are there in a packed cache. Where finish() says so, a
// third time gives those that have been written to it meanwhile, in place of those that were packed.
//
// Thread-safety: none; packing runs on the context's pool.
// Ownership: borrows the checkpoint; what it returns owns its memory, or its share of a packed file.
// Errors: one sentence with file, tensor and reason. Names and shapes have been checked before
//   (formats::check_model_tensors); a tensor that is missing all the same is an error, not a crash.

#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "formats/checkpoint.h"
#include "kernels/context.h"
#include "layout/stages.h"
#include "parallel/matrix_supply.h"
#include "parallel/packed_linear.h"
#include "parallel/row_parallel.h"
#include "parallel/shard.h"

namespace shoal::model {

// The type that a matrix is packed as, where `weights` is what LoadOptions asks for.
DType packed_as(const formats::ModelTensor& tensor, std::optional<DType> weights);

class WeightLoader {
 public:
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

  // stage: the layers that will be asked for.
  WeightLoader(const formats::Checkpoint& checkpoint, std::optional<DType> weights,
               const kernels::Context& context, Progress progress);

  // Begins to read. Fails with kExhausted.
  Status start(const std::optional<parallel::PackedCache>& cache);
  // After the last answer. True where all is to be asked for once more.
  bool finish();
  // Whether the matrices lie in a mapped file.
  bool mapped() const { return supply_.mapped(); }

  struct Rows {
    std::string tensor;
    parallel::IndexRange rows;
  };

  // Outputs split over ranks: the rows of each tensor that this rank computes, side by side.
  Expected<parallel::PackedLinear> column_parallel(std::initializer_list<Rows> parts);
  // Inputs split over ranks; segment_ends count from columns.begin; segment_counts: of every rank.
  Expected<parallel::RowParallel> row_parallel(const std::string& tensor, parallel::IndexRange columns,
                                               std::span<const std::int64_t> segment_ends,
                                               const std::vector<std::int32_t>& segment_counts);
  // A bias, whole.
  Expected<std::vector<float>> vector(const std::string& tensor);
  // A norm's weight, whole, with what the format stores it less by.
  Expected<std::vector<float>> norm(const std::string& tensor);

 private:
  Expected<const formats::ModelTensor*> find(const std::string& tensor);
  Status failed(const std::string& tensor, const std::string& reason) const;
  void done_with(const formats::ModelTensor& tensor, std::uint64_t bytes);

  const formats::Checkpoint& checkpoint_;
  std::optional<DType> weights_;
  kernels::Context context_;
  Progress progress_;
  parallel::MatrixSupply supply_;
  std::uint64_t done_ = 0;  // bytes of files
  std::uint64_t total_ = 0;
};

}  // namespace shoal::model
