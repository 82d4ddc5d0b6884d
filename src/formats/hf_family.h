// What a Hugging Face checkpoint of each known model_type leaves unsaid: which of our architectures it is,
// the defaults of its config.json, and how its tensors are called.
//
// A new dense family is an entry in the table of hf_family.cc, and one in architecture.cc.
//
// Thread-safety: pure functions over constants.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/architecture.h"

namespace shoal::formats {

// What the library that wrote the checkpoint assumes for fields that config.json omits. 0: the field must be
// there, or follows from others (kv_heads from heads, head_dim from dim).
struct HfDefaults {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t context = 0;
  std::int64_t window = 0;
  double rms_eps = 1e-6;
  double rope_base = 10000;
  double query_scalar = 0;  // query_pre_attn_scalar; 0: head_dim
  bool tied = false;
};

// When a layer has a sliding window where config.json lists no layer_types.
enum class HfWindows {
  kNever,
  kAlways,        // every layer, where sliding_window is given
  kAboveMaximum,  // layers from max_window_layers on, where use_sliding_window
  kPeriodic,      // all but the last of every sliding_window_pattern (or the architecture's period)
};

struct HfFamily {
  std::string_view model_type;
  std::string_view architecture;  // of ours
  HfDefaults defaults;
  HfWindows windows = HfWindows::kNever;
  // Norm weights are stored less one.
  bool norms_less_one = false;
  // The text model is one part of several: its settings are in "text_config".
  bool nested = false;
};

// Null where unknown.
const HfFamily* find_hf_family(std::string_view model_type);
// "llama, mistral, ...".
std::string known_hf_families();

// The name in a checkpoint of this family, without any prefix: "model.layers.0.self_attn.q_proj.weight" ->
// "blk.0.attn_q.weight". Nothing for a name that has no place in the family.
std::optional<std::string> canonical_tensor_name(const HfFamily& family, std::string_view name);
// And back, for messages and for writing; what is unknown stays as it is.
std::string hf_tensor_name(const HfFamily& family, std::string_view canonical);

}  // namespace shoal::formats
