#include "formats/synth_stream.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "formats/synth_weights.h"
#include "tensor/half.h"

namespace shoal::formats {
namespace {

constexpr float kBiasSigma = 0.1F;
// 8 MiB: four 2 MiB pieces to deal among threads, small beside any memory.
constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;

// Deviation of a matrix in units of 1 / sqrt(row length). With 1 throughout, attention is nearly uniform and
// every position ends with nearly the same logits (correlation 0.83 in llama-1b); sharper queries and a
// smaller share of attention in the residual keep positions apart, as in a trained model.
float spread(std::string_view name) {
  if (name.ends_with("attn_q.weight")) return 2.0F;
  if (name.ends_with("attn_output.weight")) return 0.5F;
  return 1.0F;
}

}  // namespace

SynthStream::SynthStream(const SynthOptions& options, std::uint64_t total_bytes, ThreadPool& pool)
    : options_(options), total_(total_bytes), pool_(pool), chunk_(static_cast<std::size_t>(kChunkBytes)) {}

Status SynthStream::write(const TensorNeed& need, DType type, const Sink& sink) {
  if (need.part == ModelPart::kNorm) return write_ones(type, need.dims[0], sink);
  const bool bias = need.dims.size() == 1;
  const float sigma = bias ? kBiasSigma : spread(need.name) / std::sqrt(static_cast<float>(need.dims[0]));
  // The stream belongs to the tensor's name: adding a tensor leaves the others as they are.
  const std::uint64_t key = random_word(options_.seed, XXH3_64bits(need.name.data(), need.name.size()));
  std::int64_t blocks = need.dims[0] / block_elements(type);
  if (!bias) blocks *= need.dims[1];
  return write_blocks(type, key, sigma, blocks, sink);
}

Status SynthStream::write_floats(const std::vector<float>& values, const Sink& sink) {
  return put(std::as_bytes(std::span(values)), sink);
}

Status SynthStream::write_ones(DType type, std::int64_t count, const Sink& sink) {
  const auto n = static_cast<std::size_t>(count);
  if (type == DType::kF32) return write_floats(std::vector<float>(n, 1.0F), sink);
  const std::vector<std::uint16_t> ones(n, type == DType::kF16 ? f32_to_f16(1.0F) : f32_to_bf16(1.0F));
  return put(std::as_bytes(std::span(ones)), sink);
}

Status SynthStream::write_blocks(DType type, std::uint64_t key, float sigma, std::int64_t blocks,
                                 const Sink& sink) {
  const std::int64_t bytes = block_bytes(type);
  const std::int64_t most = kChunkBytes / bytes;
  const std::int64_t grain = std::max<std::int64_t>(1, most / 16);
  for (std::int64_t first = 0; first < blocks; first += most) {
    const std::int64_t count = std::min(most, blocks - first);
    pool_.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int) {
      fill_random(type, key, first + begin, sigma, piece(begin * bytes, end * bytes));
    });
    SHOAL_TRY(put(piece(0, count * bytes), sink));
  }
  return {};
}

Status SynthStream::put(std::span<const std::byte> bytes, const Sink& sink) {
  SHOAL_TRY(sink(bytes));
  done_ += bytes.size();
  if (options_.progress) options_.progress(done_, total_);
  return {};
}

}  // namespace shoal::formats
