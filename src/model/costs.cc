#include "model/costs.h"

#include <fmt/format.h>

#include <numeric>
#include <string_view>

#include "model/weight_loader.h"

namespace shoal::model {
namespace {

// How often the head runs for a prompt's token.
constexpr double kHeadPerPromptToken = 1.0 / 512;

// weigh(tensor): its cost, for every matrix of a layer and for the head.
template <typename F>
ModelCosts costs_of(const formats::Checkpoint& checkpoint, F&& weigh) {
  ModelCosts costs;
  costs.layers.resize(static_cast<std::size_t>(checkpoint.metadata().layers));
  for (std::size_t layer = 0; layer < costs.layers.size(); ++layer) {
    for (const char* matrix :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
      if (const auto* tensor = checkpoint.tensor(fmt::format("blk.{}.{}.weight", layer, matrix)))
        costs.layers[layer] += weigh(*tensor);
    }
  }
  const auto* head = checkpoint.tensor("output.weight");
  if (head == nullptr) head = checkpoint.tensor("token_embd.weight");
  if (head != nullptr) costs.head = weigh(*head);
  return costs;
}

ModelCosts prefill_costs(const formats::Checkpoint& checkpoint) {
  ModelCosts costs = costs_of(
      checkpoint, [](const formats::ModelTensor& tensor) { return static_cast<double>(tensor.elements()); });
  costs.head *= kHeadPerPromptToken;
  double kv = 0;
  for (const char* matrix : {"attn_q", "attn_k", "attn_v"}) {
    if (const auto* tensor =
            checkpoint.tensor(fmt::format("blk.{}.{}.weight", costs.layers.size() - 1, matrix)))
      kv += static_cast<double>(tensor->elements());
  }
  if (kv > 0) costs.layers.back() = kv;
  return costs;
}

void scale(ModelCosts& costs, double factor) {
  for (double& layer : costs.layers) layer *= factor;
  costs.head *= factor;
}

}  // namespace

double ModelCosts::total() const { return std::accumulate(layers.begin(), layers.end(), head); }

ModelCosts decode_costs(const formats::Checkpoint& checkpoint, std::optional<DType> weights) {
  return costs_of(checkpoint, [&](const formats::ModelTensor& tensor) {
    return static_cast<double>(tensor.rows()) *
           static_cast<double>(row_bytes(packed_as(tensor, weights), tensor.row_length()));
  });
}

ModelCosts balancing_costs(const formats::Checkpoint& checkpoint, std::optional<DType> weights,
                           Balance balance) {
  ModelCosts decode = decode_costs(checkpoint, weights);
  scale(decode, 1 / decode.total());
  if (balance == Balance::kDecode) return decode;
  ModelCosts prefill = prefill_costs(checkpoint);
  scale(prefill, 1 / prefill.total());
  if (balance == Balance::kPrefill) return prefill;
  for (std::size_t layer = 0; layer < decode.layers.size(); ++layer)
    decode.layers[layer] = (decode.layers[layer] + prefill.layers[layer]) / 2;
  decode.head = (decode.head + prefill.head) / 2;
  return decode;
}

}  // namespace shoal::model
