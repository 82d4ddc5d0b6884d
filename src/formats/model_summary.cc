#include "formats/model_summary.h"

namespace shoal::formats {

std::string_view model_part_name(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
      return "embedding";
    case ModelPart::kAttention:
      return "attention";
    case ModelPart::kFeedForward:
      return "feed_forward";
    case ModelPart::kNorm:
      return "norm";
    case ModelPart::kOutput:
      return "output";
  }
  return "other";
}

ModelSummary summarise(const GgufFile& file, const ModelMetadata& model) {
  return summarise(TensorTable::of(file), model);
}

ModelSummary summarise(const TensorTable& tensors, const ModelMetadata& model) {
  ModelSummary out;
  for (const TensorNeed& need : needed_tensors(model)) {
    const ModelTensor* tensor = tensors.find(need.name);
    if (tensor == nullptr) continue;
    const auto bytes = static_cast<std::int64_t>(tensor->bytes.size());
    for (Weight* weight : {&out.parts[static_cast<std::size_t>(need.part)],
                           &out.by_type[std::string(dtype_name(tensor->type))], &out.total}) {
      weight->parameters += tensor->elements();
      weight->bytes += bytes;
    }
  }
  const Weight& embedding = out.part(ModelPart::kEmbedding);
  out.decode_bytes = out.total.bytes;
  if (!model.tied_embeddings && model.vocab > 0)
    out.decode_bytes -= embedding.bytes / model.vocab * (model.vocab - 1);
  return out;
}

}  // namespace shoal::formats
