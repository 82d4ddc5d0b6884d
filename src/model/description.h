// What a model is, by data: enough to build its forward pass, its KV groups and its memory plan.
//
// Thread-safety: values, immutable after construction.
// Invariants: every layer is an attention block followed by a feed-forward block; a new dense family is a
//   table entry in formats/, not a new forward.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_metadata.h"
#include "kernels/elementwise.h"
#include "layout/kv_groups.h"

namespace shoal::model {

struct AttentionBlock {
  std::int32_t query_heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;  // 0: full
  float scale = 0;
  float softcap = 0;      // 0: none
  std::int32_t rope = 0;  // index into ropes
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;
  std::int32_t kv_group = 0;        // index into kv groups
  std::int32_t layer_in_group = 0;  // index of this layer inside its group
};

struct FeedForwardBlock {
  std::int64_t width = 0;
  kernels::GatedActivation activation = kernels::GatedActivation::kSilu;
};

struct LayerDescription {
  // Norms on what each block adds to the residual stream, beside those on what it reads.
  bool post_norms = false;
  AttentionBlock attention;
  FeedForwardBlock feed_forward;
};

struct ModelDescription {
  std::string name;
  std::string architecture;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::int32_t context_length = 0;
  float norm_eps = 0;
  bool tied_embeddings = false;
  float embedding_scale = 1;
  float final_softcap = 0;  // logits become cap * tanh(logit / cap); 0: none
  // Layers of one model may turn at different speeds: AttentionBlock::rope chooses.
  std::vector<kernels::Rope> ropes;
  std::vector<LayerDescription> layers;
  std::vector<KvGroup> kv_groups;
  std::uint64_t parameters = 0;
  // 32 hex digits (formats/fingerprint.h): prefix caches and peers are keyed by it. Covers version 1 of the
  // KV layout; its element type and heads are compared beside it, as KvLayout::id().
  std::string fingerprint;
};

// The description of a model whose metadata has been read; `fingerprint` and `parameters` are left empty,
// since they need the tensors.
ModelDescription describe(const formats::ModelMetadata& metadata);

// The rotary frequencies that the settings ask for, with linear, YaRN or per-pair scaling applied.
kernels::Rope rope_of(const formats::RopeSettings& settings);

}  // namespace shoal::model
