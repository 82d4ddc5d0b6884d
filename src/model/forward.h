// A loaded model on one rank: its description, its shard of the weights, and the forward pass.
//
// Thread-safety: load() and forward() belong to the rank's executor thread; description() and kv_groups() are
//   immutable after loading and may be read from any thread.
// Ownership: owns packed weights and activation scratch. Borrows the pools and the thread pool.
// Invariants:
//   1. forward() is written once against Layout groups: a layer is an attention block and a feed-forward
//      block, each asking for the group it talks to.
//   2. In strict mode a row's logits depend on its sequence's tokens alone (docs/execution.md, "Strict
//      mode").
//   3. forward() allocates nothing once the largest batch has been seen.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "kernels/context.h"
#include "layout/context_moves.h"
#include "layout/kv_groups.h"
#include "layout/layout.h"
#include "layout/reshard.h"
#include "layout/stages.h"
#include "model/costs.h"
#include "model/description.h"
#include "parallel/peers.h"
#include "parallel/shard.h"
#include "tensor/dtype.h"
#include "tensor/kv_layout.h"
#include "tensor/matrix.h"

namespace shoal::model {

// The new tokens of one sequence in a pass.
struct BatchSpan {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t start = 0;  // position of the first
  // For each KV group (by index): slot of every logical page up to start + rows; kernels::kNoSlot behind a
  // window.
  std::vector<std::span<const std::int32_t>> slots;
};

// What every coordinate computes in a step in which some of it sees pages of another.
struct ContextBatch {
  std::vector<ContextWork> groups;                    // by KV group
  std::vector<std::vector<std::int32_t>> logit_rows;  // by coordinate, of its batch
};

// One rank's part of a step plan with every token known.
struct Batch {
  std::vector<TokenId> tokens;           // [rows]
  std::vector<std::int32_t> positions;   // [rows]
  std::vector<BatchSpan> spans;          // rows in order, no gaps
  std::vector<std::int32_t> logit_rows;  // rows whose logits are wanted, ascending
  // Null where every sequence's pages lie with the coordinate that computes it. Alike on all coordinates; one
  // without rows of its own takes part, too: it may hold what others see.
  const ContextBatch* context = nullptr;

  std::int64_t rows() const { return static_cast<std::int64_t>(tokens.size()); }
};

// Called when the KV of a layer of this pass is complete on this rank, also where other coordinates computed
// it: the handover pushes from here. layer: by index in the model.
using LayerHook = std::function<void(std::int32_t layer)>;

struct LoadOptions {
  Layout layout = Layout::single();
  std::int32_t rank = 0;
  // Layers of each stage; empty: balanced by cost.
  std::vector<std::int32_t> stage_layers;
  Balance balance = Balance::kMix;
  std::vector<std::int32_t> tp_split;  // parallel::Place::split
  kernels::Context context;            // pool, ISA, activations, strict
  // Matrices that the files hold as F32, F16 or BF16 are packed as this type, one of bf16, q8_0 and q4_0,
  // where their rows are whole blocks of it; rows of the embedding table are read as they are. Absent: as in
  // the files.
  std::optional<DType> weights;
  // A folder that keeps packed matrices for later loads and other ranks (parallel/matrix_supply.h); empty:
  // none.
  std::filesystem::path packed_cache;
  // Called with done and total bytes of weights while packing.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

class Model {
 public:
  // model: a GGUF file, the first of a split one, or a Hugging Face folder. Fails with one sentence naming
  // file, tensor and reason.
  static Expected<std::unique_ptr<Model>> load(const std::filesystem::path& model,
                                               const LoadOptions& options);
  // Whether the model can be cut as asked, read from its metadata and tensor table alone: what a head asks
  // before it starts other ranks. Fails with load()'s sentence.
  static Status check(const std::filesystem::path& model, const LoadOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelDescription& description() const;
  // Groups of the whole model and, for this rank, the KV layout of each group's pool with `slots` left 0.
  const std::vector<KvGroup>& kv_groups() const;
  KvLayout pool_layout(KvGroupId group, KvDType dtype) const;
  // Which layers of the group and which heads of the model that pool holds.
  KvPart kv_part(KvGroupId group) const;
  std::size_t weight_bytes() const;
  // Of weight_bytes(), what lies in the page cache, mapped from a packed cache: the system calls that free.
  std::size_t mapped_weight_bytes() const;
  // Which kernel serves each kind of layer, one line each, for the start-up report.
  std::vector<std::string> kernel_report() const;

  // The way to the other ranks; needed before the first pass where there are any. It outlives the model.
  void set_peers(parallel::Peers& peers);
  // The part of the vocabulary whose logits this rank computes; empty but in the last stage.
  parallel::IndexRange vocabulary() const;
  // Where the part of each rank of the tensor group ends.
  const std::vector<std::int64_t>& vocabulary_ends() const;
  const std::vector<std::int32_t>& stage_layers() const;
  // Of the whole model, on whatever ranks: what a decoded token reads.
  const ModelCosts& decode_costs() const;

  // Seconds that attention over keys and values has taken so far in all passes, waiting for other coordinates
  // included, projections not.
  double attention_seconds() const;

  // pools: one view per KV group. logits: [batch.logit_rows.size(), vocabulary().size()].
  // The tokens' ids and positions must be in range: the head has checked them. With peers, whether the pass
  // is worth anything is in their status().
  void forward(const Batch& batch, std::span<const KvView> pools, MatrixView<float> logits,
               const LayerHook& hook = {});

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::model
