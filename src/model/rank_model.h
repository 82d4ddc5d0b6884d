// The parts of a loaded model on one rank: what Model::load() fills and Model::forward() runs through.
//
// Thread-safety: as Model.
// Ownership: owns the mapped files (embedding rows are read from it), the packed weights and the scratch.

#pragma once

#include <memory>
#include <vector>

#include "formats/checkpoint.h"
#include "model/activations.h"
#include "model/attention_layer.h"
#include "model/feed_forward_layer.h"
#include "model/forward.h"
#include "parallel/packed_linear.h"

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
  const formats::ModelTensor* embedding = nullptr;
  std::vector<Layer> layers;
  std::vector<float> output_norm;
  parallel::PackedLinear head;

  Activations activations;
  kernels::MatmulScratch matmul;
  // Rebuilt by every pass, kept for their capacity: for each KV group the spans of the batch, and those of
  // the rows that are attended in the last layer.
  std::vector<std::vector<kernels::AttentionSpan>> spans;
  std::vector<kernels::AttentionSpan> wanted_spans;
};

}  // namespace shoal::model
