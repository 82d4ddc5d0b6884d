// KV layout v1: where the key and value of a token of a head lie in a pool. The one place that computes sizes
// and offsets, so that kernels, transfers and tiers cannot disagree.
//
// A page holds kPageTokens tokens. A *tile* is one page of one head of one layer:
//   K tile [head_dim / 2][kPageTokens][2]: pairs of dimensions, the 32 tokens side by side
//   V tile [kPageTokens / 2][head_dim][2]: pairs of tokens, the dimensions side by side
// In bf16 a 64-byte row of either is an AMX operand, a VDPBF16PS operand and two AVX2 loads; in f32 the order
// of elements is the same and a row takes 128 bytes.
//
// A pool is, per layer and KV head, one slab of K tiles and one slab of V tiles, both indexed by slot
// (head-major: one head's pages lie in one region, which reads 50 % faster than page-major).
//
// Thread-safety: values and pure functions.
// Invariants: head_dim is even; offsets are in bytes from the pool's base, each tile 64-byte aligned.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "layout/kv_groups.h"
#include "tensor/half.h"

namespace shoal {

enum class KvDType : std::uint8_t { kBf16, kF32 };

struct KvLayout {
  std::int32_t layers = 0;    // of this KV group on this rank
  std::int32_t kv_heads = 0;  // of this rank, duplicates counted
  std::int32_t head_dim = 0;
  std::int32_t slots = 0;  // pages of the pool
  KvDType dtype = KvDType::kBf16;

  std::size_t element_bytes() const { return dtype == KvDType::kBf16 ? 2 : 4; }
  // K and V tiles have the same size.
  std::size_t tile_bytes() const {
    return static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(head_dim) * element_bytes();
  }
  std::size_t slab_bytes() const { return tile_bytes() * static_cast<std::size_t>(slots); }
  // All layers and heads of one page: what one slot costs.
  std::size_t page_bytes() const {
    return 2 * tile_bytes() * static_cast<std::size_t>(layers) * static_cast<std::size_t>(kv_heads);
  }
  std::size_t pool_bytes() const { return page_bytes() * static_cast<std::size_t>(slots); }

  std::size_t k_tile(std::int32_t layer, std::int32_t head, std::int32_t slot) const {
    return tile(layer, head, slot, 0);
  }
  std::size_t v_tile(std::int32_t layer, std::int32_t head, std::int32_t slot) const {
    return tile(layer, head, slot, 1);
  }

  // Element offsets inside a tile; token in [0, kPageTokens).
  std::size_t k_element(int dim, int token) const {
    return (static_cast<std::size_t>(dim / 2) * kPageTokens + static_cast<std::size_t>(token)) * 2 +
           static_cast<std::size_t>(dim % 2);
  }
  std::size_t v_element(int dim, int token) const {
    return (static_cast<std::size_t>(token / 2) * static_cast<std::size_t>(head_dim) +
            static_cast<std::size_t>(dim)) *
               2 +
           static_cast<std::size_t>(token % 2);
  }

  // "v1/bf16/h3x64": peers compare it when they meet.
  std::string id() const;

 private:
  std::size_t tile(std::int32_t layer, std::int32_t head, std::int32_t slot, std::size_t which) const {
    const auto slab = (static_cast<std::size_t>(layer) * static_cast<std::size_t>(kv_heads) +
                       static_cast<std::size_t>(head)) *
                          2 +
                      which;
    return slab * slab_bytes() + static_cast<std::size_t>(slot) * tile_bytes();
  }
};

// A pool's memory as kernels see it: base address and layout. Owns nothing.
struct KvView {
  std::byte* base = nullptr;
  KvLayout layout;

  template <typename T>
  T* k(std::int32_t layer, std::int32_t head, std::int32_t slot) const {
    return reinterpret_cast<T*>(base + layout.k_tile(layer, head, slot));
  }
  template <typename T>
  T* v(std::int32_t layer, std::int32_t head, std::int32_t slot) const {
    return reinterpret_cast<T*>(base + layout.v_tile(layer, head, slot));
  }
};

}  // namespace shoal
