// What a model weighs and where: parameters and bytes by part and by type, for `shoal inspect` and planning.
//
// Thread-safety: values and pure functions.
// Units: parameters are elements, bytes are those of the files.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "formats/gguf_file.h"
#include "formats/model_metadata.h"

namespace shoal::formats {

struct Weight {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
};

struct ModelSummary {
  std::array<Weight, kModelParts> parts;  // indexed by ModelPart
  std::map<std::string, Weight> by_type;  // "q8_0"
  Weight total;
  // Bytes of weights that one decoded token reads: all but the embedding table, of which it reads a row; a
  // tied table is read whole, as the output.
  std::int64_t decode_bytes = 0;

  const Weight& part(ModelPart p) const { return parts[static_cast<std::size_t>(p)]; }
};

std::string_view model_part_name(ModelPart part);

// The tensors must have passed check_model_tensors.
ModelSummary summarise(const TensorTable& tensors, const ModelMetadata& model);
ModelSummary summarise(const GgufFile& file, const ModelMetadata& model);

}  // namespace shoal::formats
