// What each layer and the head of a model cost, for balancing stages and judging layouts.
//
// Thread-safety: pure functions.

#pragma once

#include <optional>
#include <vector>

#include "formats/checkpoint.h"
#include "layout/stages.h"
#include "tensor/dtype.h"

namespace shoal::model {

struct ModelCosts {
  std::vector<double> layers;
  double head = 0;

  double total() const;
};

// Bytes of packed weights that a decoded token reads.
ModelCosts decode_costs(const formats::Checkpoint& checkpoint, std::optional<DType> weights);

// In parts of the whole. prefill: multiplications for a token of a 512-token prompt, whose last layer
// computes keys and values alone for all but one. mix: half of each.
ModelCosts balancing_costs(const formats::Checkpoint& checkpoint, std::optional<DType> weights,
                           Balance balance);

}  // namespace shoal::model
