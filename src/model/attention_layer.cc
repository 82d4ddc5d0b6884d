#include "model/attention_layer.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::model {

namespace {

constexpr std::size_t kQuery = 0;
constexpr std::size_t kKey = 1;
constexpr std::size_t kValue = 2;

// The rows or elements of whole heads.
parallel::IndexRange elements(parallel::IndexRange heads, std::int32_t head_dim) {
  return {heads.begin * head_dim, heads.end * head_dim};
}

std::string tensor_name(std::int32_t layer, const char* suffix) {
  return fmt::format("blk.{}.{}", layer, suffix);
}

}  // namespace

AttentionLayer::AttentionLayer(const AttentionBlock& block, const parallel::AttentionShard& shard,
                               parallel::PackedLinear qkv, parallel::RowParallel output)
    : block_(block), kv_head_of_(shard.kv_head_of), qkv_(std::move(qkv)), output_(std::move(output)) {}

Expected<AttentionLayer> AttentionLayer::load(WeightLoader& loader, std::int32_t layer,
                                              const AttentionBlock& block,
                                              const parallel::AttentionShard& shard,
                                              const std::vector<std::int32_t>& segment_counts) {
  const auto queries = elements(shard.query_heads, block.head_dim);
  const auto keys = elements(shard.kv_heads, block.head_dim);
  SHOAL_ASSIGN(qkv, loader.column_parallel({{tensor_name(layer, "attn_q.weight"), queries},
                                            {tensor_name(layer, "attn_k.weight"), keys},
                                            {tensor_name(layer, "attn_v.weight"), keys}}));
  SHOAL_ASSIGN(output, loader.row_parallel(tensor_name(layer, "attn_output.weight"), queries,
                                           shard.segment_ends, segment_counts));
  AttentionLayer loaded(block, shard, std::move(qkv), std::move(output));
  SHOAL_TRY(loaded.load_vectors(loader, layer, shard));
  return loaded;
}

Status AttentionLayer::load_vectors(WeightLoader& loader, std::int32_t layer,
                                    const parallel::AttentionShard& shard) {
  if (block_.qkv_bias) {
    const auto queries = elements(shard.query_heads, block_.head_dim);
    const auto keys = elements(shard.kv_heads, block_.head_dim);
    for (const auto& [suffix, range] :
         {std::pair{"attn_q.bias", queries}, {"attn_k.bias", keys}, {"attn_v.bias", keys}}) {
      SHOAL_ASSIGN(bias, loader.vector(tensor_name(layer, suffix)));
      qkv_bias_.insert(qkv_bias_.end(), bias.begin() + range.begin, bias.begin() + range.end);
    }
  }
  if (block_.output_bias) {
    SHOAL_ASSIGN(bias, loader.vector(tensor_name(layer, "attn_output.bias")));
    output_bias_ = std::move(bias);
  }
  if (block_.qk_norm) {
    SHOAL_ASSIGN(query_norm, loader.norm(tensor_name(layer, "attn_q_norm.weight")));
    SHOAL_ASSIGN(key_norm, loader.norm(tensor_name(layer, "attn_k_norm.weight")));
    query_norm_ = std::move(query_norm);
    key_norm_ = std::move(key_norm);
  }
  return {};
}

std::int64_t AttentionLayer::heads_width() const {
  return static_cast<std::int64_t>(kv_head_of_.size()) * block_.head_dim;
}

kernels::AttentionShape AttentionLayer::shape() const {
  kernels::AttentionShape shape;
  shape.layer = block_.layer_in_group;
  shape.head_dim = block_.head_dim;
  shape.query_heads = static_cast<std::int32_t>(kv_head_of_.size());
  shape.kv_head_of = kv_head_of_;
  shape.scale = block_.scale;
  shape.softcap = block_.softcap;
  shape.window = block_.window;
  return shape;
}

void AttentionLayer::write(const Pass& pass, const KvView& pool,
                           std::span<const kernels::AttentionSpan> spans, MatrixView<const float> x,
                           MatrixView<float> qkv) const {
  const kernels::Context& context = pass.kernels;
  qkv_.apply(context, pass.matmul, x, qkv);
  if (!qkv_bias_.empty()) kernels::add_bias(context, qkv, qkv_bias_);
  const MatrixView<float> q = qkv_.part(qkv, kQuery);
  const MatrixView<float> k = qkv_.part(qkv, kKey);
  if (block_.qk_norm) {
    kernels::head_rms_norm(context, q, block_.head_dim, query_norm_, pass.norm_eps);
    kernels::head_rms_norm(context, k, block_.head_dim, key_norm_, pass.norm_eps);
  }
  // q and k lie side by side and their heads are equally wide: one call turns both.
  const MatrixView<float> rotated(qkv.data, qkv.rows, q.columns + k.columns, qkv.stride);
  const kernels::Rope& rope = pass.ropes[static_cast<std::size_t>(block_.rope)];
  kernels::apply_rope(context, rope, rotated, block_.head_dim, pass.positions);
  kernels::write_kv(context, pool, shape(), spans, k, qkv_.part(qkv, kValue));
}

void AttentionLayer::attend(const Pass& pass, const KvView& pool,
                            std::span<const kernels::AttentionSpan> spans, MatrixView<float> qkv,
                            MatrixView<float> heads) const {
  kernels::attention(pass.kernels, pool, shape(), spans, qkv_.part(qkv, kQuery), heads);
}

void AttentionLayer::begin_across(parallel::ContextAttention& context,
                                  const parallel::ContextAttention::Plan& plan, const ContextWork& work,
                                  MatrixView<float> qkv) const {
  context.begin(plan, work, qkv_.part(qkv, kQuery), qkv_.part(qkv, kKey), qkv_.part(qkv, kValue));
}

void AttentionLayer::receive_across(parallel::ContextAttention& context, const KvView& pool) const {
  context.receive(shape(), pool);
}

void AttentionLayer::attend_across(parallel::ContextAttention& context,
                                   parallel::ContextAttention::Plan& plan, const KvView& pool,
                                   MatrixView<float> qkv, MatrixView<float> heads) const {
  context.attend(plan, shape(), pool, qkv_.part(qkv, kQuery), heads);
}

void AttentionLayer::project(const Pass& pass, MatrixView<const float> heads, MatrixView<float> delta) const {
  output_.apply(pass.kernels, pass.matmul, heads, delta, pass.peers);
  if (!output_bias_.empty()) kernels::add_bias(pass.kernels, delta, output_bias_);
}

}  // namespace shoal::model
