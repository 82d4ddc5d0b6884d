// Sequences fed to a model by hand, without a scheduler: what score, perplexity and the engine's benchmark
// run on.
//
// Thread-safety: none; belongs to the thread of its model.
// Ownership: owns one KV pool for each group. Borrows the model.
// Invariants: every sequence has its own pages, side by side; nothing is shared and nothing freed before
//   reset().

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "model/forward.h"
#include "tensor/buffer.h"
#include "tensor/kv_layout.h"
#include "tensor/matrix.h"

namespace shoal::cli {

enum class LogitsOf : std::uint8_t { kNone, kLast, kAll };

struct SequenceWork {
  std::int32_t sequence = 0;
  std::span<const TokenId> tokens;
  LogitsOf logits = LogitsOf::kNone;
};

class Sequences {
 public:
  Sequences(model::Model& model, KvDType dtype) : model_(model), dtype_(dtype) {}

  // `count` empty sequences with room for `tokens` each. Fails with kTooLong above the model's context and
  // kExhausted for memory.
  Status reset(std::int32_t count, std::int64_t tokens);
  // Appends the tokens of every item; a sequence appears once. logits: one row for each row asked for, in
  // order.
  void run(std::span<const SequenceWork> work, MatrixView<float> logits);
  // Bytes of keys and values that a token reads with `context` tokens before it: all layers, their windows
  // counted.
  std::int64_t kv_bytes_read(std::int64_t context) const;
  // Takes back the tokens from `length` on.
  void truncate(std::int32_t sequence, std::int32_t length) {
    lengths_[static_cast<std::size_t>(sequence)] = length;
  }

 private:
  model::Model& model_;
  KvDType dtype_;
  std::int64_t pages_each_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int32_t> slots_;  // [sequences, pages_each_]: slot i is page i
  std::vector<Buffer> buffers_;
  std::vector<KvView> pools_;
  model::Batch batch_;
};

}  // namespace shoal::cli
