// Model::load(): from files to packed weights, in the order in which a pass uses them.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/checkpoint.h"
#include "formats/fingerprint.h"
#include "formats/model_metadata.h"
#include "kernels/dequantise.h"
#include "model/rank_model.h"
#include "model/weight_loader.h"
#include "parallel/collectives.h"
#include "parallel/shard.h"

namespace shoal::model {

namespace {

// Heads are dealt alike in every layer, so one quantised output projection makes all of them cut at blocks.
bool any_output_quantised(const formats::Checkpoint& checkpoint, std::optional<DType> weights) {
  return std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(), [&](const auto& tensor) {
    return tensor.name.ends_with("attn_output.weight") && is_quantised(packed_as(tensor, weights));
  });
}

Expected<Layer> load_layer(WeightLoader& loader, const ModelDescription& description, std::int32_t index,
                           const parallel::AttentionShard& attention_shard,
                           const parallel::FeedForwardShard& feed_forward_shard, const Layout& layout,
                           std::int32_t rank) {
  const LayerDescription& layer = description.layers[static_cast<std::size_t>(index)];
  SHOAL_ASSIGN(attention_norm, loader.norm(fmt::format("blk.{}.attn_norm.weight", index)));
  SHOAL_ASSIGN(attention, AttentionLayer::load(loader, index, layer.attention, attention_shard,
                                               layout.group(GroupKind::kAttentionTensor, rank)));
  SHOAL_ASSIGN(feed_forward_norm, loader.norm(fmt::format("blk.{}.ffn_norm.weight", index)));
  SHOAL_ASSIGN(feed_forward, FeedForwardLayer::load(loader, index, layer.feed_forward, feed_forward_shard,
                                                    layout.group(GroupKind::kFeedForwardTensor, rank)));
  Layer loaded{std::move(attention_norm),    std::move(attention),    {},
               std::move(feed_forward_norm), std::move(feed_forward), {}};
  if (layer.post_norms) {
    SHOAL_ASSIGN(attention_post, loader.norm(fmt::format("blk.{}.post_attention_norm.weight", index)));
    SHOAL_ASSIGN(feed_forward_post, loader.norm(fmt::format("blk.{}.post_ffw_norm.weight", index)));
    loaded.attention_post_norm = std::move(attention_post);
    loaded.feed_forward_post_norm = std::move(feed_forward_post);
  }
  return loaded;
}

// Asking for a type that nothing would be packed as is a mistake worth a word.
Status check_weights(const formats::Checkpoint& checkpoint, std::optional<DType> weights) {
  if (!weights) return {};
  if (*weights != DType::kBF16 && *weights != DType::kQ8_0 && *weights != DType::kQ4_0) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("weights cannot be made {}; known are bf16, q8_0 and q4_0", dtype_name(*weights))};
  }
  const auto tensors = checkpoint.tensors();
  const bool any = std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    return tensor.n_dims == 2 && packed_as(tensor, weights) == *weights;
  });
  if (any) return {};
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: no matrix can be made {}: only f32, f16 and bf16 are converted, in rows of whole "
                      "blocks of {}",
                      checkpoint.name(), dtype_name(*weights), block_elements(*weights))};
}

parallel::Place place_in(const Group& group) { return {group.size(), group.index}; }

std::uint64_t count_parameters(const formats::Checkpoint& checkpoint) {
  std::uint64_t total = 0;
  for (const auto& tensor : checkpoint.tensors()) total += static_cast<std::uint64_t>(tensor.elements());
  return total;
}

}  // namespace

Expected<std::unique_ptr<Model>> Model::load(const std::filesystem::path& model, const LoadOptions& options) {
  SHOAL_TRY(parallel::check_carriers(options.layout));
  SHOAL_ASSIGN(checkpoint, formats::Checkpoint::open(model));
  const formats::ModelMetadata& metadata = checkpoint.metadata();

  SHOAL_TRY(check_weights(checkpoint, options.weights));
  const std::string_view weights = options.weights ? dtype_name(*options.weights) : "file";
  ModelDescription description = describe(metadata);
  description.parameters = count_parameters(checkpoint);
  description.fingerprint = formats::model_fingerprint(checkpoint, weights, "v1").hex();
  const parallel::Place attention_place =
      place_in(options.layout.group(GroupKind::kAttentionTensor, options.rank));
  const parallel::Place feed_forward_place =
      place_in(options.layout.group(GroupKind::kFeedForwardTensor, options.rank));
  const AttentionBlock& block = description.layers.front().attention;
  SHOAL_ASSIGN(attention_shard,
               parallel::attention_shard({block.query_heads, block.kv_heads, block.head_dim},
                                         any_output_quantised(checkpoint, options.weights), attention_place));
  SHOAL_ASSIGN(feed_forward_shard, parallel::feed_forward_shard(metadata.ffn_dim, feed_forward_place));

  WeightLoader loader(checkpoint, options.weights, options.context, options.progress);
  std::vector<Layer> layers;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(description.layers.size()); ++i) {
    SHOAL_ASSIGN(layer, load_layer(loader, description, i, attention_shard, feed_forward_shard,
                                   options.layout, options.rank));
    layers.push_back(std::move(layer));
  }
  SHOAL_ASSIGN(output_norm, loader.norm("output_norm.weight"));
  const std::string head_name = description.tied_embeddings ? "token_embd.weight" : "output.weight";
  const parallel::Place sampling_place = place_in(options.layout.group(GroupKind::kSampling, options.rank));
  SHOAL_ASSIGN(head, loader.column_parallel(
                         {{head_name, parallel::vocabulary_shard(description.vocabulary, sampling_place)}}));

  const formats::ModelTensor* embedding = checkpoint.tensor("token_embd.weight");
  if (embedding == nullptr || !kernels::can_dequantise(embedding->type)) {
    return Status(ErrorCode::kUnsupported,
                  fmt::format("{}: tensor '{}' cannot be read row by row", checkpoint.name(),
                              checkpoint.table().spelled("token_embd.weight")));
  }
  const std::size_t groups = description.kv_groups.size();
  auto impl = std::unique_ptr<Impl>(new Impl{std::move(checkpoint),
                                             std::move(description),
                                             options.context,
                                             static_cast<std::int32_t>(attention_shard.kv_heads.size()),
                                             nullptr,
                                             std::move(layers),
                                             std::move(output_norm),
                                             std::move(head),
                                             {},
                                             {},
                                             std::vector<std::vector<kernels::AttentionSpan>>(groups),
                                             {}});
  impl->embedding = impl->checkpoint.tensor("token_embd.weight");
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const ModelDescription& Model::description() const { return impl_->description; }
const std::vector<KvGroup>& Model::kv_groups() const { return impl_->description.kv_groups; }

KvLayout Model::pool_layout(KvGroupId group, KvDType dtype) const {
  const KvGroup& of = impl_->description.kv_groups[static_cast<std::size_t>(group.value)];
  KvLayout layout;
  layout.layers = static_cast<std::int32_t>(of.layers.size());
  layout.kv_heads = impl_->kv_heads;
  layout.head_dim = of.head_dim;
  layout.dtype = dtype;
  return layout;
}

std::size_t Model::weight_bytes() const {
  std::size_t total = impl_->head.bytes();
  for (const Layer& layer : impl_->layers) total += layer.attention.bytes() + layer.feed_forward.bytes();
  return total;
}

std::vector<std::string> Model::kernel_report() const {
  std::vector<std::string> lines;
  const auto add = [&](const char* kind, const parallel::PackedLinear& weights) {
    for (const std::string& name : weights.kernel_names(impl_->context)) {
      std::string line = fmt::format("{}: {}", kind, name);
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
    }
  };
  // Layers of one model may differ in type (K-quant mixes): every kind that occurs, once.
  for (const Layer& layer : impl_->layers) {
    add("attention q, k, v", layer.attention.input_weights());
    add("attention output", layer.attention.output_weights());
    add("feed-forward gate, up", layer.feed_forward.input_weights());
    add("feed-forward down", layer.feed_forward.output_weights());
  }
  add("head", impl_->head);
  return lines;
}

}  // namespace shoal::model
