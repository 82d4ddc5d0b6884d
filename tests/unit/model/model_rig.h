// A small random model and sequences run through it in any chunking, batching and page order.

#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "formats/gguf_file.h"
#include "formats/gguf_writer.h"
#include "formats/synth.h"
#include "kernels/attention.h"
#include "model/forward.h"
#include "tensor/buffer.h"

namespace shoal::model::test {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "shoal_model_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Two layers; widths that are no multiples of the kernels' tiles.
inline formats::SynthShape tiny_shape() {
  return {.name = "tiny",
          .architecture = "llama",
          .layers = 2,
          .dim = 96,
          .heads = 6,
          .kv_heads = 2,
          .head_dim = 16,
          .ffn_dim = 160,
          .vocab = 300,
          .context = 1024,
          .rms_eps = 1e-5,
          .rope_base = 10000,
          .tied = true,
          .rope_factor = 0};
}

struct RigOptions {
  int threads = 2;
  bool strict = true;
  kernels::Activations activations = kernels::Activations::kAuto;
  KvDType kv = KvDType::kBf16;
  std::filesystem::path packed_cache = {};
};

inline std::vector<TokenId> arbitrary_tokens(int count, int seed, std::int64_t vocabulary) {
  std::vector<TokenId> out;
  std::uint64_t state = static_cast<std::uint64_t>(seed) * 77 + 5;
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    out.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocabulary)));
  }
  return out;
}

class Rig {
 public:
  explicit Rig(const std::filesystem::path& file, RigOptions options = {})
      : pool_({.threads = options.threads, .spin = std::chrono::microseconds(0), .pin = false}),
        kv_(options.kv) {
    LoadOptions load;
    load.context.pool = &pool_;
    load.context.isa = *kernels::chosen_isa();
    load.context.activations = options.activations;
    load.context.strict = options.strict;
    load.packed_cache = options.packed_cache;
    auto loaded = Model::load(file, load);
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message();
      return;
    }
    model_ = std::move(*loaded);
  }

  Model& model() { return *model_; }
  std::int64_t vocabulary() const { return model_->description().vocabulary; }

  // Fresh pools of `slots` pages in every group.
  void make_pools(std::int32_t slots) {
    pools_.clear();
    buffers_.clear();
    for (const KvGroup& group : model_->kv_groups()) {
      KvLayout layout = model_->pool_layout(group.id, kv_);
      layout.slots = slots;
      buffers_.push_back(*Buffer::allocate(layout.pool_bytes(), "test"));
      pools_.push_back({buffers_.back().data(), layout});
    }
  }

  // A sequence's pages: `table[group]`.
  using Table = std::vector<std::vector<std::int32_t>>;
  Table table(std::int32_t first_slot, std::int32_t pages, bool shuffled = false) const {
    std::vector<std::int32_t> slots(static_cast<std::size_t>(pages));
    std::iota(slots.begin(), slots.end(), first_slot);
    if (shuffled) std::reverse(slots.begin(), slots.end());
    return Table(model_->kv_groups().size(), slots);
  }

  struct Piece {
    std::span<const TokenId> tokens;
    std::int32_t start = 0;
    const Table* table = nullptr;
    bool logits = true;
  };

  // One pass; gives [wanted rows, vocabulary].
  std::vector<float> pass(const std::vector<Piece>& pieces, const LayerHook& hook = {}) {
    Batch batch;
    for (const Piece& piece : pieces) {
      BatchSpan span;
      span.first_row = static_cast<std::int32_t>(batch.rows());
      span.rows = static_cast<std::int32_t>(piece.tokens.size());
      span.start = piece.start;
      for (const auto& slots : *piece.table) span.slots.emplace_back(slots);
      for (std::int32_t i = 0; i < span.rows; ++i) {
        batch.tokens.push_back(piece.tokens[static_cast<std::size_t>(i)]);
        batch.positions.push_back(span.start + i);
        if (piece.logits) batch.logit_rows.push_back(span.first_row + i);
      }
      batch.spans.push_back(std::move(span));
    }
    const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
    std::vector<float> logits(static_cast<std::size_t>(rows * vocabulary()));
    model_->forward(batch, pools_, {logits.data(), rows, vocabulary()}, hook);
    return logits;
  }

  // All logits of one sequence alone, in chunks.
  std::vector<float> run(std::span<const TokenId> tokens, std::size_t chunk, bool shuffled = false) {
    const auto pages = static_cast<std::int32_t>((tokens.size() + kPageTokens - 1) / kPageTokens);
    make_pools(pages);
    const Table slots = table(0, pages, shuffled);
    std::vector<float> out;
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const std::size_t rows = std::min(chunk, tokens.size() - begin);
      const auto part = pass({{tokens.subspan(begin, rows), static_cast<std::int32_t>(begin), &slots, true}});
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

 private:
  ThreadPool pool_;
  KvDType kv_;
  std::unique_ptr<Model> model_;
  std::vector<Buffer> buffers_;
  std::vector<KvView> pools_;
};

inline void write_model(const std::filesystem::path& path, DType type,
                        formats::SynthShape shape = tiny_shape()) {
  ThreadPool pool({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
  const Status written = formats::write_synth(shape, {.type = type, .seed = 3, .progress = {}}, path, pool);
  ASSERT_TRUE(written.ok()) << written.message();
}

// Copies a model file, adding a sliding window to all layers but every `period`-th.
inline void add_window(const std::filesystem::path& from, const std::filesystem::path& to,
                       std::uint32_t window, std::uint32_t period) {
  auto source = formats::GgufFile::open(from);
  ASSERT_TRUE(source.ok()) << source.error().message();
  formats::GgufWriter writer(to);
  for (const auto& entry : source->metadata()) writer.add_value(entry.key, entry.value);
  writer.add_uint32("llama.attention.sliding_window", window);
  writer.add_uint32("llama.attention.sliding_window_pattern", period);
  for (const auto& tensor : source->tensors()) {
    writer.add_tensor(tensor.name, tensor.type,
                      std::span(tensor.dims).first(static_cast<std::size_t>(tensor.n_dims)));
  }
  ASSERT_TRUE(writer.begin().ok());
  for (const auto& tensor : source->tensors()) ASSERT_TRUE(writer.write(tensor.bytes).ok());
  ASSERT_TRUE(writer.finish().ok());
}

}  // namespace shoal::model::test
