#include "model/weight_loader.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/dequantise.h"
#include "kernels/quantise.h"
#include "parallel/weight_slice.h"

namespace shoal::model {

DType packed_as(const formats::ModelTensor& tensor, std::optional<DType> weights) {
  if (weights && !is_quantised(tensor.type) && tensor.row_length() % block_elements(*weights) == 0)
    return *weights;
  return kernels::packed_type(tensor.type);
}

WeightLoader::WeightLoader(const formats::Checkpoint& checkpoint, std::optional<DType> weights,
                           const kernels::Context& context, LayerRange stage, Progress progress)
    : checkpoint_(checkpoint), weights_(weights), context_(context), progress_(std::move(progress)) {
  const formats::ModelTensor* embedding = nullptr;
  // What belongs to no layer is the head and its norm.
  const bool last_stage = stage.end == checkpoint.metadata().layers;
  for (const auto& need : formats::needed_tensors(checkpoint.metadata())) {
    const formats::ModelTensor* tensor = checkpoint.tensor(need.name);
    const bool held = need.layer < 0 ? last_stage : need.layer >= stage.begin && need.layer < stage.end;
    if (tensor == nullptr || !held) continue;
    (need.part == formats::ModelPart::kEmbedding ? embedding : order_.emplace_back()) = tensor;
  }
  // As the head it comes last; rows of an embedding that is not the head too are read as tokens come.
  if (checkpoint.metadata().tied_embeddings && embedding != nullptr) order_.push_back(embedding);
  for (const auto* tensor : order_) total_ += tensor->bytes.size();
}

Expected<const formats::ModelTensor*> WeightLoader::find(const std::string& tensor) {
  const formats::ModelTensor* found = checkpoint_.tensor(tensor);
  if (found == nullptr) return failed(tensor, "is missing");
  read_ahead();
  return found;
}

Status WeightLoader::failed(const std::string& tensor, const std::string& reason) const {
  const formats::ModelTensor* found = checkpoint_.tensor(tensor);
  return {
      ErrorCode::kUnsupported,
      fmt::format("{}: tensor '{}': {}", found == nullptr ? checkpoint_.name() : checkpoint_.file_of(*found),
                  checkpoint_.table().spelled(tensor), reason)};
}

void WeightLoader::read_ahead() {
  // Enough for the disk to work while a matrix is packed, and small beside any memory.
  constexpr std::uint64_t kAhead = std::uint64_t{128} << 20;
  while (asked_ < order_.size() && asked_bytes_ < done_ + kAhead) {
    formats::Checkpoint::will_need(*order_[asked_]);
    asked_bytes_ += order_[asked_]->bytes.size();
    ++asked_;
  }
}

void WeightLoader::done_with(const formats::ModelTensor& tensor) {
  checkpoint_.drop(tensor);
  done_ += tensor.bytes.size();
  if (progress_) progress_(done_, total_);
}

Expected<parallel::PackedLinear> WeightLoader::column_parallel(std::initializer_list<Rows> parts) {
  std::vector<kernels::WeightSource> sources;
  std::vector<const formats::ModelTensor*> tensors;
  for (const auto& part : parts) {
    SHOAL_ASSIGN(tensor, find(part.tensor));
    tensors.push_back(tensor);
    sources.push_back(parallel::row_slice(*tensor, part.rows));
    sources.back().pack_as = packed_as(*tensor, weights_);
  }
  const std::int64_t whole[] = {sources.front().columns};
  auto linear = parallel::PackedLinear::pack(sources, whole, context_);
  if (!linear) return failed(parts.begin()->tensor, linear.error().message());
  for (const auto* tensor : tensors) done_with(*tensor);
  return linear;
}

Expected<parallel::RowParallel> WeightLoader::row_parallel(const std::string& tensor,
                                                           parallel::IndexRange columns,
                                                           std::span<const std::int64_t> segment_ends,
                                                           const std::vector<std::int32_t>& segment_counts) {
  SHOAL_ASSIGN(found, find(tensor));
  std::vector<parallel::IndexRange> ranges = {columns};
  if (parallel::RowParallel::apart(segment_counts, context_)) {
    ranges.clear();
    std::int64_t begin = columns.begin;
    for (const std::int64_t end : segment_ends) {
      ranges.push_back({begin, columns.begin + end});
      begin = columns.begin + end;
    }
  }
  std::vector<kernels::WeightSource> sources;
  for (const parallel::IndexRange& range : ranges) {
    auto source = parallel::column_slice(*found, range);
    if (!source) return failed(tensor, source.error().message());
    source->pack_as = packed_as(*found, weights_);
    sources.push_back(*std::move(source));
  }
  auto linear = parallel::RowParallel::pack(sources, segment_ends, segment_counts, context_);
  if (!linear) return failed(tensor, linear.error().message());
  done_with(*found);
  return linear;
}

Expected<std::vector<float>> WeightLoader::vector(const std::string& tensor) {
  SHOAL_ASSIGN(found, find(tensor));
  if (!kernels::can_dequantise(found->type)) {
    return failed(tensor, fmt::format("{} cannot be read", dtype_name(found->type)));
  }
  std::vector<float> values(static_cast<std::size_t>(found->elements()));
  kernels::dequantise_row(found->type, found->bytes.data(), found->elements(), values.data());
  done_with(*found);
  return values;
}

Expected<std::vector<float>> WeightLoader::norm(const std::string& tensor) {
  SHOAL_ASSIGN(weight, vector(tensor));
  const auto offset = static_cast<float>(checkpoint_.metadata().norm_offset);
  for (float& w : weight) w += offset;
  return std::move(weight);
}

}  // namespace shoal::model
