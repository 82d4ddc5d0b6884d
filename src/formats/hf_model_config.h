// config.json of a Hugging Face checkpoint: what it says about the model, with the family's defaults for what
// it leaves out.
//
// Thread-safety: pure functions.
// Errors: kCorrupt where the file contradicts itself, kUnsupported where nothing here can run the model; one
//   sentence with the file, the field and the reason.

#pragma once

#include "core/expected.h"
#include "formats/hf_family.h"
#include "formats/json_fields.h"
#include "formats/model_metadata.h"

namespace shoal::formats {

struct HfModelConfig {
  const HfFamily* family = nullptr;
  // Biases and QK norm as the family always has them; where it only may, the tensors decide.
  ModelMetadata model;
};

Expected<HfModelConfig> read_hf_model_config(const JsonFile& config);

}  // namespace shoal::formats
