// The rotary part of a config.json.
//
// Thread-safety: pure functions.
// Errors: as hf_model_config.h.

#pragma once

#include <cstdint>

#include "core/expected.h"
#include "formats/json_fields.h"
#include "formats/model_metadata.h"

namespace shoal::formats {

// config: the fields of the text model. Reads rope_theta, rope_scaling and rope_local_base_freq, or the
// rope_parameters that newer files have in their place, into model.rope and model.window_rope; needs
// model.head_dim and model.context, which YaRN may lengthen. window_base: of layers with a window where the
// file does not say; 0: they turn as all others.
Status read_hf_rope(const JsonFields& config, double default_base, double window_base, ModelMetadata& model);

}  // namespace shoal::formats
