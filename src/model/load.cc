// Model::load(): from files to packed weights, in the order in which a pass uses them.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/fingerprint.h"
#include "formats/model_metadata.h"
#include "kernels/dequantise.h"
#include "model/rank_model.h"
#include "model/weight_loader.h"
#include "parallel/peers.h"
#include "parallel/shard.h"

namespace shoal::model {

namespace {

// Heads are dealt alike in every layer, so one quantised output projection makes all of them cut at blocks.
bool any_output_quantised(const formats::Checkpoint& checkpoint, std::optional<DType> weights) {
  return std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(), [&](const auto& tensor) {
    return tensor.name.ends_with("attn_output.weight") && is_quantised(packed_as(tensor, weights));
  });
}

// This rank's part of every layer, and how many K segments each rank of its tensor group has.
struct Shards {
  parallel::AttentionShard attention;
  std::vector<std::int32_t> attention_segments;
  parallel::FeedForwardShard feed_forward;
  std::vector<std::int32_t> feed_forward_segments;
};

Expected<Shards> shards_of(const ModelDescription& description, bool output_quantised,
                           parallel::Place place) {
  const AttentionBlock& block = description.layers.front().attention;
  const parallel::HeadCounts heads{block.query_heads, block.kv_heads, block.head_dim};
  const std::int64_t width = description.layers.front().feed_forward.width;
  Shards shards;
  for (std::int32_t i = 0; i < place.ranks; ++i) {
    const parallel::Place other{place.ranks, i, place.split};
    SHOAL_ASSIGN(attention, parallel::attention_shard(heads, output_quantised, other));
    SHOAL_ASSIGN(feed_forward, parallel::feed_forward_shard(width, other));
    shards.attention_segments.push_back(static_cast<std::int32_t>(attention.segment_ends.size()));
    shards.feed_forward_segments.push_back(static_cast<std::int32_t>(feed_forward.segment_ends.size()));
    if (i != place.index) continue;
    shards.attention = std::move(attention);
    shards.feed_forward = std::move(feed_forward);
  }
  return shards;
}

bool holds(const LayerRange& stage, std::int32_t layer) { return layer >= stage.begin && layer < stage.end; }

// Index of a layer among those of its KV group that this stage holds.
std::int32_t layer_in_pool(const ModelDescription& description, const AttentionBlock& block,
                           const LayerRange& stage) {
  const KvGroup& group = description.kv_groups[static_cast<std::size_t>(block.kv_group)];
  const auto before = std::count_if(group.layers.begin(), group.layers.begin() + block.layer_in_group,
                                    [&](std::int32_t layer) { return holds(stage, layer); });
  return static_cast<std::int32_t>(before);
}

Expected<Layer> load_layer(WeightLoader& loader, const ModelDescription& description, std::int32_t index,
                           const Shards& shards, const LayerRange& stage) {
  LayerDescription layer = description.layers[static_cast<std::size_t>(index)];
  layer.attention.layer_in_group = layer_in_pool(description, layer.attention, stage);
  SHOAL_ASSIGN(attention_norm, loader.norm(fmt::format("blk.{}.attn_norm.weight", index)));
  SHOAL_ASSIGN(attention, AttentionLayer::load(loader, index, layer.attention, shards.attention,
                                               shards.attention_segments));
  SHOAL_ASSIGN(feed_forward_norm, loader.norm(fmt::format("blk.{}.ffn_norm.weight", index)));
  SHOAL_ASSIGN(feed_forward, FeedForwardLayer::load(loader, index, layer.feed_forward, shards.feed_forward,
                                                    shards.feed_forward_segments));
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

struct Weights {
  std::vector<Layer> layers;
  std::vector<float> output_norm;
  std::optional<parallel::PackedLinear> head;
};

// The layers of a stage; its norm and its part of the head, where it holds the model's last layer.
Expected<Weights> load_weights(WeightLoader& loader, const ModelDescription& description,
                               const Shards& shards, const LayerRange& stage,
                               parallel::IndexRange vocabulary) {
  Weights weights;
  for (std::int32_t i = stage.begin; i < stage.end; ++i) {
    SHOAL_ASSIGN(layer, load_layer(loader, description, i, shards, stage));
    weights.layers.push_back(std::move(layer));
  }
  if (stage.end == static_cast<std::int32_t>(description.layers.size())) {
    SHOAL_ASSIGN(norm, loader.norm("output_norm.weight"));
    weights.output_norm = std::move(norm);
  }
  if (!vocabulary.empty()) {
    const std::string head_name = description.tied_embeddings ? "token_embd.weight" : "output.weight";
    SHOAL_ASSIGN(head, loader.column_parallel({{head_name, vocabulary}}));
    weights.head = std::move(head);
  }
  return weights;
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

// The layers of each stage: as asked for, where that deals all of them; else balanced.
Expected<std::vector<std::int32_t>> stages_of(const formats::Checkpoint& checkpoint,
                                              const LoadOptions& options) {
  const std::int32_t stages = options.layout.degrees().pp;
  const ModelCosts costs = balancing_costs(checkpoint, options.weights, options.balance);
  SHOAL_ASSIGN(balanced, balanced_stages(costs.layers, costs.head, stages));
  const std::vector<std::int32_t>& asked = options.stage_layers;
  if (asked.empty()) return balanced;
  const std::int64_t sum = std::accumulate(asked.begin(), asked.end(), std::int64_t{0});
  const auto layers = static_cast<std::int64_t>(costs.layers.size());
  const bool each = std::all_of(asked.begin(), asked.end(), [](std::int32_t n) { return n > 0; });
  if (each && sum == layers && asked.size() == static_cast<std::size_t>(stages)) return asked;
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("--layers {} does not deal the model's {} layers to {} stages; {} would",
                            fmt::join(asked, ","), layers, stages, fmt::join(balanced, ",")));
}

std::uint64_t count_parameters(const formats::Checkpoint& checkpoint) {
  std::uint64_t total = 0;
  for (const auto& tensor : checkpoint.tensors()) total += static_cast<std::uint64_t>(tensor.elements());
  return total;
}

// A rank's part, before anything of it is read.
struct Cut {
  ModelDescription description;
  parallel::Place place;
  Shards shards;
  std::vector<std::int32_t> stage_layers;
};

Expected<Cut> cut_for(const formats::Checkpoint& checkpoint, const LoadOptions& options) {
  SHOAL_TRY(check_weights(checkpoint, options.weights));
  Cut cut;
  cut.description = describe(checkpoint.metadata());
  const Group tensor = options.layout.group(GroupKind::kAttentionTensor, options.rank);
  cut.place = {tensor.size(), tensor.index, options.tp_split};
  SHOAL_TRY(parallel::check_split(options.tp_split, cut.place.ranks));
  SHOAL_ASSIGN(shards,
               shards_of(cut.description, any_output_quantised(checkpoint, options.weights), cut.place));
  cut.shards = std::move(shards);
  SHOAL_ASSIGN(stage_layers, stages_of(checkpoint, options));
  cut.stage_layers = std::move(stage_layers);
  return cut;
}

}  // namespace

Status Model::check(const std::filesystem::path& model, const LoadOptions& options) {
  SHOAL_TRY(parallel::check_degrees(options.layout.degrees()));
  SHOAL_ASSIGN(checkpoint, formats::Checkpoint::open(model));
  return cut_for(checkpoint, options).status();
}

Expected<std::unique_ptr<Model>> Model::load(const std::filesystem::path& model, const LoadOptions& options) {
  SHOAL_TRY(parallel::check_degrees(options.layout.degrees()));
  SHOAL_ASSIGN(checkpoint, formats::Checkpoint::open(model));
  SHOAL_ASSIGN(cut, cut_for(checkpoint, options));
  ModelDescription& description = cut.description;
  const parallel::Place& place = cut.place;
  const Shards& shards = cut.shards;

  const std::string_view packed = options.weights ? dtype_name(*options.weights) : "file";
  description.parameters = count_parameters(checkpoint);
  description.fingerprint = formats::model_fingerprint(checkpoint, packed, "v1").hex();
  const LayerRange stage = layers_of_stage(cut.stage_layers, options.layout.coordinate(options.rank).pp);
  const bool last_stage = stage.end == static_cast<std::int32_t>(description.layers.size());
  const parallel::IndexRange vocabulary =
      last_stage ? parallel::vocabulary_shard(description.vocabulary, place) : parallel::IndexRange{};

  WeightLoader loader(checkpoint, options.weights, options.context, options.progress);
  const auto load_all = [&] { return load_weights(loader, description, shards, stage, vocabulary); };
  SHOAL_TRY(load_all().status());  // what is needed, in order
  std::optional<parallel::PackedCache> cache;
  if (!options.packed_cache.empty()) cache = {options.packed_cache, description.fingerprint};
  SHOAL_TRY(loader.start(cache));
  SHOAL_ASSIGN(weights, load_all());
  if (loader.finish()) {
    SHOAL_ASSIGN(written, load_all());
    weights = std::move(written);
  }

  const formats::ModelTensor* embedding = checkpoint.tensor("token_embd.weight");
  if (embedding == nullptr || !kernels::can_dequantise(embedding->type)) {
    return Status(ErrorCode::kUnsupported,
                  fmt::format("{}: tensor '{}' cannot be read row by row", checkpoint.name(),
                              checkpoint.table().spelled("token_embd.weight")));
  }
  const std::size_t groups = description.kv_groups.size();
  std::vector<std::int64_t> vocabulary_ends =
      parallel::vocabulary_ends(description.vocabulary, place.ranks, options.tp_split);
  ModelCosts costs = model::decode_costs(checkpoint, options.weights);
  auto impl = std::unique_ptr<Impl>(new Impl{std::move(checkpoint),
                                             std::move(description),
                                             options.context,
                                             static_cast<std::int32_t>(shards.attention.kv_heads.size()),
                                             static_cast<std::int32_t>(shards.attention.kv_heads.begin),
                                             nullptr,
                                             std::move(weights.layers),
                                             std::move(weights.output_norm),
                                             std::move(weights.head),
                                             {},
                                             {},
                                             std::vector<std::vector<kernels::AttentionSpan>>(groups),
                                             {},
                                             {},
                                             std::vector<parallel::ContextAttention::Plan>(groups),
                                             {},
                                             {},
                                             nullptr,
                                             {},
                                             {},
                                             std::move(vocabulary_ends),
                                             std::move(cut.stage_layers),
                                             std::move(costs),
                                             loader.mapped()});
  impl->embedding = impl->checkpoint.tensor("token_embd.weight");
  impl->stage = stage;
  impl->vocabulary = vocabulary;
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const ModelDescription& Model::description() const { return impl_->description; }
const std::vector<KvGroup>& Model::kv_groups() const { return impl_->description.kv_groups; }
void Model::set_peers(parallel::Peers& peers) {
  impl_->peers = &peers;
  impl_->context_attention.reset();
  if (peers.context_size() > 1) impl_->context_attention.emplace(impl_->context, peers);
}
parallel::IndexRange Model::vocabulary() const { return impl_->vocabulary; }
const std::vector<std::int64_t>& Model::vocabulary_ends() const { return impl_->vocabulary_ends; }
const std::vector<std::int32_t>& Model::stage_layers() const { return impl_->stage_layers; }
const ModelCosts& Model::decode_costs() const { return impl_->decode_costs; }

KvLayout Model::pool_layout(KvGroupId group, KvDType dtype) const {
  const KvGroup& of = impl_->description.kv_groups[static_cast<std::size_t>(group.value)];
  KvLayout layout;
  layout.layers = static_cast<std::int32_t>(std::count_if(
      of.layers.begin(), of.layers.end(), [&](std::int32_t layer) { return holds(impl_->stage, layer); }));
  layout.kv_heads = impl_->kv_heads;
  layout.head_dim = of.head_dim;
  layout.dtype = dtype;
  return layout;
}

KvPart Model::kv_part(KvGroupId group) const {
  const KvGroup& of = impl_->description.kv_groups[static_cast<std::size_t>(group.value)];
  const auto before = [&](std::int32_t layer) {
    return static_cast<std::int32_t>(std::ranges::lower_bound(of.layers, layer) - of.layers.begin());
  };
  const std::int32_t first = before(impl_->stage.begin);
  return {first, before(impl_->stage.end) - first, impl_->first_kv_head, impl_->kv_heads};
}

std::size_t Model::weight_bytes() const {
  std::size_t total = impl_->head ? impl_->head->bytes() : 0;
  for (const Layer& layer : impl_->layers) total += layer.attention.bytes() + layer.feed_forward.bytes();
  return total;
}

double Model::attention_seconds() const { return impl_->attention_seconds; }

std::size_t Model::mapped_weight_bytes() const { return impl_->weights_mapped ? weight_bytes() : 0; }

std::vector<std::string> Model::kernel_report() const {
  std::vector<std::string> lines;
  const auto add = [&](const char* kind, const auto& weights) {
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
  if (impl_->head) add("head", *impl_->head);
  return lines;
}

}  // namespace shoal::model
