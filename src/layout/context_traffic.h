// What a step moves between the coordinates of a worker: the formulas that the traffic ledger is held
// against.
//
// Of one rank with h_q query heads and h_kv KV heads (duplicates counted) of D values, b bytes each in the KV
// pool; in each layer, for every other coordinate; R rows of queries (in the model's last layer those whose
// logits are wanted), of which a message counts where it has any bytes:
//
//   cp_ring   pages out         each page of its pool that a prompt's tokens of that coordinate see, once:
//                               2 * 32 * h_kv * D * b
//             queries out       R * h_q * D * 4, where the plan has them travel; in the model's last layer
//                               those of a row alone, always
//             results back      for that coordinate's rows: R * h_q * (D + 1) * 4; in strict mode, and
//                               in window groups, R * pieces * h_q * (D + 2) * 4
//   cp_merge  queries, results  the same of decoded tokens, whose queries always travel
//             keys and values   2 * h_kv * D * 4 for each decoded token whose page the other owns
//
// A prompt of N tokens that is computed in one step by M coordinates, dealt zig-zag, has each of them own N /
// M tokens. Of the 2 M blocks each other coordinate needs all but those that lie behind all of its own: with
// two coordinates 1 sends 0 both of its blocks, and 0 sends 1 its first (the last lies behind everything).
//
// Thread-safety: ContextTables: none; the rest are pure functions.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/context_moves.h"
#include "layout/kv_groups.h"
#include "layout/step_plan.h"
#include "layout/traffic.h"

namespace shoal {

// The page tables of the sequences that step plans have opened, as every rank keeps them.
class ContextTables {
 public:
  explicit ContextTables(std::int32_t groups) : groups_(static_cast<std::size_t>(groups)) {}

  // Plans in order.
  void apply(const StepPlan& plan);
  // What every coordinate computes in the plan applied last, as one KV group sees it. Borrows the tables.
  ContextWork work(const StepPlan& plan, std::int32_t group) const;
  // The same of those rows alone whose logits are wanted: no prompt's log-probabilities.
  ContextWork sampled_work(const StepPlan& plan, std::int32_t group) const;

 private:
  struct Table {
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t> owners;
  };
  std::size_t groups_ = 1;
  std::vector<std::vector<Table>> sequences_;  // by slot and group
};

// What of a rank's model and layout decides the traffic between coordinates.
struct ContextShape {
  std::int32_t coordinate = 0;
  std::int32_t query_heads = 0;  // of this rank
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int64_t kv_value_bytes = 2;
  bool strict = false;
  std::vector<KvGroup> groups;  // of the model
  // Of this rank's stage, each layer's group; of the model's last layer only wanted rows attend.
  std::vector<std::int32_t> layer_groups;
  bool last_stage = true;
};

struct ContextStepTraffic {
  Traffic ring;
  Traffic merge;
};
// Of this rank for one plan, which tables have applied.
ContextStepTraffic context_traffic(const ContextShape& shape, const ContextTables& tables,
                                   const StepPlan& plan);

}  // namespace shoal
