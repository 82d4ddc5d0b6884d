#include "model/weight_loader.h"

#include <fmt/format.h>

#include <utility>

#include "core/available_memory.h"
#include "kernels/dequantise.h"
#include "kernels/quantise.h"
#include "parallel/weight_slice.h"

namespace shoal::model {

DType packed_as(const formats::ModelTensor& tensor, std::optional<DType> weights) {
  if (weights && !is_quantised(tensor.type) && tensor.row_length() % block_elements(*weights) == 0)
    return *weights;
  return kernels::packed_type(tensor.type);
}

namespace {

std::uint64_t source_bytes(std::span<const kernels::WeightSource> sources) {
  std::int64_t total = 0;
  for (const auto& source : sources) total += source.rows * source.bytes_per_row();
  return static_cast<std::uint64_t>(total);
}

}  // namespace

WeightLoader::WeightLoader(const formats::Checkpoint& checkpoint, std::optional<DType> weights,
                           const kernels::Context& context, Progress progress)
    : checkpoint_(checkpoint),
      weights_(weights),
      context_(context),
      progress_(std::move(progress)),
      supply_(checkpoint.mappings(), context) {}

Status WeightLoader::start(const std::optional<parallel::PackedCache>& cache) {
  // Files that with their packed copy would take over half of what is free would push everything else, and in
  // the end themselves, out of the page cache. Smaller ones stay in it for the next start.
  const bool around_cache = total_ + supply_.packed_bytes() > available_memory() / 2;
  return supply_.start(cache, around_cache, progress_);
}

bool WeightLoader::finish() { return supply_.finish(); }

Expected<const formats::ModelTensor*> WeightLoader::find(const std::string& tensor) {
  const formats::ModelTensor* found = checkpoint_.tensor(tensor);
  if (found == nullptr) return failed(tensor, "is missing");
  return found;
}

Status WeightLoader::failed(const std::string& tensor, const std::string& reason) const {
  const formats::ModelTensor* found = checkpoint_.tensor(tensor);
  return {
      ErrorCode::kUnsupported,
      fmt::format("{}: tensor '{}': {}", found == nullptr ? checkpoint_.name() : checkpoint_.file_of(*found),
                  checkpoint_.table().spelled(tensor), reason)};
}

void WeightLoader::done_with(const formats::ModelTensor& tensor, std::uint64_t bytes) {
  if (!supply_.started()) {
    total_ += bytes;
    return;
  }
  checkpoint_.drop(tensor);
  done_ += bytes;
  // Of a packed file, checking it was the work.
  if (progress_ && !supply_.mapped()) progress_(done_, total_);
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
  auto packed = parallel::PackedLinear::pack(sources, whole, context_, &supply_);
  if (!packed) return failed(parts.begin()->tensor, packed.error().message());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    done_with(*tensors[i], source_bytes(std::span(sources).subspan(i, 1)));
  return packed;
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
  auto linear = parallel::RowParallel::pack(sources, segment_ends, segment_counts, context_, &supply_);
  if (!linear) return failed(tensor, linear.error().message());
  done_with(*found, source_bytes(sources));
  return linear;
}

Expected<std::vector<float>> WeightLoader::vector(const std::string& tensor) {
  SHOAL_ASSIGN(found, find(tensor));
  if (!kernels::can_dequantise(found->type)) {
    return failed(tensor, fmt::format("{} cannot be read", dtype_name(found->type)));
  }
  std::vector<float> values(static_cast<std::size_t>(found->elements()));
  if (supply_.started()) {
    kernels::dequantise_row(found->type, found->bytes.data(), found->elements(), values.data());
  } else {
    // Read through the mapping: asked for now, it need not wait behind megabytes of matrices later.
    formats::Checkpoint::will_need(*found);
  }
  done_with(*found, found->bytes.size());
  return values;
}

Expected<std::vector<float>> WeightLoader::norm(const std::string& tensor) {
  SHOAL_ASSIGN(weight, vector(tensor));
  const auto offset = static_cast<float>(checkpoint_.metadata().norm_offset);
  for (float& w : weight) w += offset;
  return std::move(weight);
}

}  // namespace shoal::model
