// The families that can be served, as data: what a family's files do not say because its code says it.
//
// A new dense family is an entry in the table of architecture.cc, and one in hf_family.cc for its Hugging
// Face names.
//
// Thread-safety: pure functions over constants.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/model_metadata.h"

namespace shoal::formats {

enum class Presence { kNever, kIfThere, kAlways };

struct Architecture {
  std::string_view name;                   // GGUF's general.architecture
  RopeStyle rope = RopeStyle::kHalfSplit;  // of GGUF files; Hugging Face's are all half-split
  Presence attention_bias = Presence::kIfThere;
  Presence qk_norm = Presence::kNever;
  Activation activation = Activation::kSilu;
  // A norm after the attention and one after the feed-forward block, before they join the residual stream.
  bool post_norms = false;
  // Embedding rows are multiplied by sqrt(dim).
  bool scaled_embeddings = false;
  // In files with a window but no pattern: every n-th layer sees all (the last of each n); 0: no layer does.
  std::int64_t full_period = 0;
  // Base of the rotary frequencies in layers with a window; 0: that of all layers.
  double window_rope_base = 0;
  // With this many layers, attention is scaled by sqrt(heads / dim) and not by 1 / sqrt(head_dim).
  std::int64_t wide_scale_layers = 0;
  // Scores and logits are bounded by these unless the file says otherwise; 0: not.
  double attention_softcap = 0;
  double final_softcap = 0;
};

// Null where unknown.
const Architecture* find_architecture(std::string_view name);

}  // namespace shoal::formats
