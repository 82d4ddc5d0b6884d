// The parts of a loaded model on one rank: what Model::load() fills and Model::forward() runs through.
//
// Thread-safety: as Model.
// Ownership: owns the mapped files (embedding rows are read from it), the packed weights and the scratch.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "formats/checkpoint.h"
#include "layout/stages.h"
#include "model/activations.h"
#include "model/attention_layer.h"
#include "model/feed_forward_layer.h"
#include "model/forward.h"
#include "parallel/context_attention.h"
#include "parallel/packed_linear.h"
#include "parallel/peers.h"
#include "parallel/shard.h"

namespace shoal::model {

struct Layer {
  std::vector<float> attention_norm;
  AttentionLayer attention;
  std::vector<float> attention_post_norm;  // empty where the model has none
  std::vector<float> feed_forward_norm;
  FeedForwardLayer feed_forward;
  std::vector<float> feed_forward_post_norm;
};

struct Model::Impl {
  formats::Checkpoint checkpoint;
  ModelDescription description;
  kernels::Context context;
  std::int32_t kv_heads = 0;  // of this rank
  std::int32_t first_kv_head = 0;
  const formats::ModelTensor* embedding = nullptr;
  std::vector<Layer> layers;       // of this stage
  std::vector<float> output_norm;  // empty but in the last stage
  // Of the last stage, and where this rank has any of the vocabulary.
  std::optional<parallel::PackedLinear> head;

  Activations activations;
  kernels::MatmulScratch matmul;
  // Rebuilt by every pass, kept for their capacity: for each KV group the spans of the batch, and those of
  // the rows that are attended in the last layer.
  std::vector<std::vector<kernels::AttentionSpan>> spans;
  std::vector<kernels::AttentionSpan> wanted_spans;
  // The same where sequences lie with several coordinates: by KV group, and of the last layer's wanted rows.
  std::optional<parallel::ContextAttention> context_attention;
  std::vector<parallel::ContextAttention::Plan> context_plans;
  ContextWork wanted_work;
  parallel::ContextAttention::Plan wanted_plan;

  parallel::Peers* peers = nullptr;  // null where the rank is alone
  LayerRange stage;                  // the layers that this rank holds, by index in the model
  parallel::IndexRange vocabulary;   // whose logits it computes
  std::vector<std::int64_t> vocabulary_ends;
  std::vector<std::int32_t> stage_layers;
  ModelCosts decode_costs;
  bool weights_mapped = false;  // from a packed cache
  double attention_seconds = 0;

  void plan_context(const Batch& batch);
  void help(const Batch& batch, std::span<const KvView> pools, const LayerHook& hook);
  bool first_stage() const { return stage.begin == 0; }
  bool last_stage() const { return stage.end == static_cast<std::int32_t>(description.layers.size()); }
};

}  // namespace shoal::model
