// Attention by AMX: scores, weights and values of many keys at a time, bf16 products with f32 sums.
//
// Rows are taken in blocks of 32 (of up to 16 where there are no more: decode), keys in chunks of
// kChunkPages. For each chunk all blocks pass by, so that keys and values come from memory once and from L2
// then. An item is one block and one chunk: scores (tiles) -> weights (vectors) -> values (tiles). The
// weights of item i are woven between the products of the values of item i - 1 and of the scores of item i +
// 1: each unit waits for the other for half of the time otherwise.
//
// The reference that a row's scores are taken relative to need not be their maximum: f32 and bf16 have range
// enough. It is the largest of the first 16 scores, and is raised only where a sum shows that later ones
// lie 2^40 above it. So no pass over the scores looks for a maximum.

#pragma once

#include <immintrin.h>

#include <limits>

#include "kernels/attention_kernels.h"
#include "kernels/exp_inl.h"
#include "kernels/tile_config.h"
#include "kernels/vec_avx512.h"
#include "tensor/kv_layout.h"

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

#define SHOAL_FLAT inline __attribute__((always_inline))

constexpr int kChunkPages = 8;
constexpr int kChunkTokens = kChunkPages * kPageTokens;
// Scores of a row, in bytes; one line more than they need, so that the rows of a tile spread over L1's sets.
constexpr std::int64_t kScoreStride = kChunkTokens * 4 + 64;
constexpr int kTileRows = 16;
constexpr std::size_t kTileBytes = 1024;
constexpr float kRaiseAbove = 0x1p40F;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Not std's: a copy of those compiled here could be linked into a program for lesser machines.
SHOAL_FLAT constexpr std::int32_t least(std::int32_t a, std::int32_t b) { return b < a ? b : a; }
SHOAL_FLAT constexpr std::int32_t most(std::int32_t a, std::int32_t b) { return a < b ? b : a; }

// Dimensions of one product, in pairs: the largest divisor of head_dim / 2 that a tile takes.
int step_pairs(std::int32_t head_dim) {
  int pairs = least(16, head_dim / 2);
  while (head_dim / 2 % pairs != 0) --pairs;
  return pairs;
}

constexpr std::size_t lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// 2^x, relative error 7.5e-5 (minimax cubic on [0, 1)), a fiftieth of what rounding to bf16 adds. NaN gives
// NaN, -inf zero.
SHOAL_FLAT __m512 exp2_cubic(__m512 x) {
  constexpr int kBelowFloor = 0x09;  // x - floor(x), no exceptions
  const __m512 f = _mm512_reduce_ps(x, kBelowFloor);
  __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(0.0780246616F), _mm512_set1_ps(0.226067593F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.695833032F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.999925308F));
  return _mm512_scalef_ps(p, x);  // takes floor(x) itself
}

SHOAL_FLAT __mmask16 lanes(std::int32_t begin, std::int32_t end) {
  const std::int32_t b = least(most(begin, 0), 16);
  const std::int32_t e = least(most(end, 0), 16);
  return static_cast<__mmask16>(((1U << e) - 1) & ~((1U << b) - 1));
}

// What a row of scores came to: sums of weights, by lane.
struct RowSums {
  float m;     // reference, log2 units
  float keep;  // what o must still be multiplied with
};

template <class Tiles, int kRowTiles>
class RowFolder {
  static constexpr int kRows = kRowTiles * kTileRows;

  struct Block {
    std::int32_t first;  // row
    std::int32_t rows;
    std::int32_t see_begin;  // tokens some row sees
    std::int32_t see_end;
    bool fresh;  // o holds nothing yet
    bool rescale;
  };
  struct Item {
    std::int32_t block;
    std::int32_t page;  // first
    std::int32_t pages;
    int buffer;
  };

 public:
  static std::size_t workspace_bytes(std::int32_t rows, std::int32_t d) {
    const auto blocks = static_cast<std::size_t>((rows + kRows - 1) / kRows);
    return blocks * (q_block_bytes(d) + o_block_bytes(d) + kRows * (64 + 8) + lines(sizeof(Block))) +
           2 * kRows * kScoreStride + kChunkTokens * 4 +
           2 * lines(static_cast<std::size_t>(kPageTokens * d) * 2);
  }

  RowFolder(const AttentionRows& t, std::byte* workspace)
      : t_(t),
        d_(t.head_dim),
        pairs_(step_pairs(d_)),
        steps_(d_ / 2 / pairs_),
        dim_tiles_(d_ / 16),
        blocks_((t.rows + kRows - 1) / kRows) {
    const auto n = static_cast<std::size_t>(blocks_);
    const auto take = [&](std::size_t bytes) {
      std::byte* p = workspace;
      workspace += lines(bytes);
      return p;
    };
    scores_[0] = take(kRows * kScoreStride);
    scores_[1] = take(kRows * kScoreStride);
    row_ = reinterpret_cast<float*>(take(kChunkTokens * 4));
    for (auto& v : edge_) v = take(static_cast<std::size_t>(kPageTokens * d_) * 2);
    q_ = take(n * q_block_bytes(d_));
    o_ = take(n * o_block_bytes(d_));
    l_ = reinterpret_cast<__m512*>(take(n * kRows * 64));
    m_ = reinterpret_cast<float*>(take(n * kRows * 4));
    keep_ = reinterpret_cast<float*>(take(n * kRows * 4));
    block_ = reinterpret_cast<Block*>(take(n * sizeof(Block)));
    for (std::int32_t b = 0; b < blocks_; ++b) start_block(b);
  }

  bool edges_are_finite() const {
    for (std::int32_t b = 0; b < blocks_; ++b) {
      const Block& block = block_[b];
      const std::int32_t first = position(block.first);
      const std::int32_t last = position(block.first + block.rows - 1);
      const std::int32_t all_begin = t_.window > 0 ? most(0, last - t_.window + 1) : 0;
      if (!finite(block.see_begin, least(all_begin, block.see_end)) ||
          !finite(most(first + 1, block.see_begin), block.see_end))
        return false;
    }
    return true;
  }

  void run() {
    TileConfig config;
    if (kRowTiles == 1) {
      for (const int tile : {0, 1, 2, 3, 4}) config.rows[tile] = static_cast<std::uint8_t>(t_.rows);
    }
    value_config_ = config;
    for (const int tile : {4, 5}) config.bytes_per_row[tile] = static_cast<std::uint16_t>(4 * pairs_);
    for (const int tile : {6, 7}) config.rows[tile] = static_cast<std::uint8_t>(pairs_);
    score_config_ = config;
    same_config_ = pairs_ == 16;
    if (same_config_) Tiles::configure(config);

    chunk_ = t_.pages.begin - kChunkPages;
    next_block_ = blocks_;
    Item before{};
    Item now{};
    Item after{};
    bool have_before = false;
    bool have_after = false;
    bool have_now = next_item(now);
    if (!have_now) {
      Tiles::release();
      return;
    }
    weave_rows_ = weave_done_ = 0;
    now.buffer = 0;
    scores(now);
    while (have_now) {
      have_after = next_item(after);
      after.buffer = 1 - now.buffer;
      begin_weave(now, have_before ? before.pages * value_groups() : 0,
                  have_after ? after.pages * steps_ : 0);
      if (have_before) values(before);
      if (have_after) scores(after);
      finish_weave();
      before = now;
      now = after;
      have_before = true;
      have_now = have_after;
    }
    values(before);
    Tiles::release();
  }

  void give(AttentionState state, float* out, std::int64_t out_stride) const {
    for (std::int32_t b = 0; b < blocks_; ++b) {
      const Block& block = block_[b];
      for (std::int32_t r = 0; r < block.rows; ++r) {
        const std::int32_t row = block.first + r;
        const float l = VecAvx512::reduce_add(l_[b * kRows + r]);
        const float* o = o_row(b, r);
        if (out == nullptr) {
          state.m[row] = m_[row];
          state.l[row] = l;
          float* to = state.o + static_cast<std::int64_t>(row) * d_;
          for (std::int32_t i = 0; i < dim_tiles_; ++i) {
            const __m512 x = block.fresh ? _mm512_setzero_ps() : _mm512_load_ps(o + i * kRows * 16);
            _mm512_storeu_ps(to + 16 * i, x);
          }
          continue;
        }
        const std::int32_t i_row = t_.first_row + row;
        float* to = out + i_row / t_.group * out_stride + static_cast<std::int64_t>(i_row % t_.group) * d_;
        const __m512 inverse = _mm512_set1_ps(l == 0 ? 0.0F : 1.0F / l);
        for (std::int32_t i = 0; i < dim_tiles_; ++i) {
          const __m512 x = block.fresh ? _mm512_setzero_ps() : _mm512_load_ps(o + i * kRows * 16);
          _mm512_storeu_ps(to + 16 * i, _mm512_mul_ps(x, inverse));
        }
      }
    }
  }

 private:
  static std::size_t q_block_bytes(std::int32_t d) {
    return static_cast<std::size_t>(d / 2 / step_pairs(d)) * kRowTiles * kTileBytes;
  }
  static std::size_t o_block_bytes(std::int32_t d) {
    return static_cast<std::size_t>(d / 16) * kRowTiles * kTileBytes;
  }

  std::int32_t position(std::int32_t row) const { return t_.position(row); }
  std::byte* o_tile(std::int32_t block, std::int32_t dim_tile) const {
    return o_ + static_cast<std::size_t>(block) * o_block_bytes(d_) +
           static_cast<std::size_t>(dim_tile) * kRowTiles * kTileBytes;
  }
  // 16 dimensions; the next 16 lie kRows * 16 floats further.
  float* o_row(std::int32_t block, std::int32_t r) const {
    return reinterpret_cast<float*>(o_tile(block, 0)) + r * 16;
  }
  const std::byte* page_of(const std::byte* slab, std::int32_t page) const {
    return slab + static_cast<std::size_t>(t_.pages.slots[page]) * t_.tile_bytes;
  }

  void start_block(std::int32_t b) {
    Block& block = block_[b];
    block.first = b * kRows;
    block.rows = least(kRows, t_.rows - block.first);
    block.fresh = true;
    block.rescale = false;
    const std::int32_t first = position(block.first);
    block.see_begin = most(t_.pages.begin * kPageTokens, t_.window > 0 ? first - t_.window + 1 : 0);
    block.see_end = least(t_.pages.end * kPageTokens, position(block.first + block.rows - 1) + 1);
    std::byte* q = q_ + static_cast<std::size_t>(b) * q_block_bytes(d_);
    const __m512 factor = _mm512_set1_ps(t_.q_factor);
    for (std::int32_t r = 0; r < kRows; ++r) {
      m_[b * kRows + r] = kLowest;
      keep_[b * kRows + r] = 1;
      l_[b * kRows + r] = _mm512_setzero_ps();
      const std::int32_t row = t_.first_row + block.first + r;
      const float* x = t_.q + row / t_.group * t_.q_stride + static_cast<std::int64_t>(row % t_.group) * d_;
      for (std::int32_t s = 0; s < steps_; ++s) {
        std::byte* to =
            q +
            (static_cast<std::size_t>(s) * kRowTiles + static_cast<std::size_t>(r / kTileRows)) * kTileBytes +
            static_cast<std::size_t>(r % kTileRows) * 64;
        if (r >= block.rows) {
          _mm512_store_si512(to, _mm512_setzero_si512());
          continue;
        }
        const float* p = x + static_cast<std::ptrdiff_t>(s) * 2 * pairs_;
        const __m512 a = _mm512_maskz_loadu_ps(lanes(0, 2 * pairs_), p);
        const __m512 c = _mm512_maskz_loadu_ps(lanes(0, 2 * pairs_ - 16), p + 16);
        const __m512bh v = _mm512_cvtne2ps_pbh(_mm512_mul_ps(c, factor), _mm512_mul_ps(a, factor));
        _mm512_store_si512(to, reinterpret_cast<const __m512i&>(v));
      }
    }
  }

  // Whether the values of tokens [begin, end) are.
  bool finite(std::int32_t begin, std::int32_t end) const {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    for (std::int32_t t = begin; t < end; ++t) {
      const auto* v = page_of(t_.pages.v_slab, t / kPageTokens) +
                      static_cast<std::ptrdiff_t>(t % kPageTokens / 2) * 4 * d_;
      const __mmask32 half = t % 2 == 0 ? 0x55555555U : 0xaaaaaaaaU;
      for (std::int32_t i = 0; i < dim_tiles_; ++i) {
        const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(v + 64 * i), exponent);
        if (_mm512_mask_cmpeq_epi16_mask(half, bits, exponent) != 0) return false;
      }
    }
    return true;
  }

  bool next_item(Item& item) {
    for (;;) {
      if (next_block_ == blocks_) {
        chunk_ += kChunkPages;
        if (chunk_ >= t_.pages.end) return false;
        next_block_ = 0;
        start_prefetch();
      }
      const Block& block = block_[next_block_];
      const std::int32_t begin = most(chunk_, block.see_begin / kPageTokens);
      const std::int32_t end =
          least(least(chunk_ + kChunkPages, t_.pages.end), (block.see_end + kPageTokens - 1) / kPageTokens);
      item.block = next_block_++;
      if (begin >= end) continue;
      item.page = begin;
      item.pages = end - begin;
      return true;
    }
  }

  // -- fetching the next chunk into L2 while this one is worked on

  void start_prefetch() {
    fetch_ = t_.pages;
    fetch_.begin = chunk_ + kChunkPages;
    if (fetch_.begin >= fetch_.end) fetch_ = t_.after;
    fetch_.end = least(fetch_.begin + kChunkPages, fetch_.end);
    fetch_line_ = 0;
    const std::int32_t calls = blocks_ * kChunkPages * (steps_ + value_groups());
    fetch_lines_ = kChunkPages * tile_lines() * 2 / calls + 1;
  }
  std::int32_t tile_lines() const { return static_cast<std::int32_t>(t_.tile_bytes / 64); }

  SHOAL_FLAT void fetch() {
    if (fetch_.begin >= fetch_.end) return;
    const std::size_t tile = static_cast<std::size_t>(fetch_.slots[fetch_.begin]) * t_.tile_bytes;
    for (std::int32_t i = 0; i < fetch_lines_; ++i) {
      const bool key = fetch_line_ < tile_lines();
      const std::byte* p = key ? fetch_.k_slab + tile + 64 * fetch_line_
                               : fetch_.v_slab + tile + 64 * (fetch_line_ - tile_lines());
      _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
      if (++fetch_line_ < 2 * tile_lines()) continue;
      fetch_line_ = 0;
      ++fetch_.begin;
      return;
    }
  }

  // -- tiles

  std::int32_t value_groups() const { return kRowTiles == 2 ? (dim_tiles_ + 1) / 2 : (dim_tiles_ + 3) / 4; }

  void scores(const Item& item) {
    if (!same_config_) Tiles::configure(score_config_);
    const std::byte* q = q_ + static_cast<std::size_t>(item.block) * q_block_bytes(d_);
    for (std::int32_t p = 0; p < item.pages; ++p) {
      const std::byte* k = page_of(t_.pages.k_slab, item.page + p);
      std::byte* s = scores_[item.buffer] + static_cast<std::ptrdiff_t>(p) * kPageTokens * 4;
      Tiles::template clear<0>();
      Tiles::template clear<1>();
      if (kRowTiles == 2) {
        Tiles::template clear<2>();
        Tiles::template clear<3>();
      }
      for (std::int32_t i = 0; i < steps_; ++i) {
        const std::byte* a = q + static_cast<std::size_t>(i) * kRowTiles * kTileBytes;
        const std::byte* b = k + static_cast<std::ptrdiff_t>(i) * pairs_ * 128;
        Tiles::template load<6>(b, 128);
        Tiles::template load<4>(a, 64);
        Tiles::template multiply_bf16<0, 4, 6>();
        Tiles::template load<7>(b + 64, 128);
        Tiles::template multiply_bf16<1, 4, 7>();
        if (kRowTiles == 2) {
          Tiles::template load<5>(a + kTileBytes, 64);
          Tiles::template multiply_bf16<3, 5, 7>();
          Tiles::template multiply_bf16<2, 5, 6>();
        }
        fetch();
      }
      Tiles::template store<0>(s, kScoreStride);
      Tiles::template store<1>(s + 64, kScoreStride);
      if (kRowTiles == 2) {
        Tiles::template store<2>(s + kTileRows * kScoreStride, kScoreStride);
        Tiles::template store<3>(s + kTileRows * kScoreStride + 64, kScoreStride);
      }
      weave(steps_);
    }
  }

  void values(const Item& item) {
    Block& block = block_[item.block];
    if (block.rescale) rescale(item.block);
    const std::byte* page[kChunkPages];
    for (std::int32_t p = 0; p < item.pages; ++p) page[p] = page_of(t_.pages.v_slab, item.page + p);
    clean_edges(block, item, page);
    if (!same_config_) Tiles::configure(value_config_);
    for (std::int32_t at = 0; at < dim_tiles_;) {
      if (kRowTiles == 2) {
        if (at + 1 < dim_tiles_) {
          value_pass<2>(item, page, at);
        } else {
          value_pass<1>(item, page, at);
        }
        at += 2;
      } else {
        const std::int32_t n = least(4, dim_tiles_ - at);
        if (n == 4) value_pass<4>(item, page, at);
        if (n == 3) value_pass<3>(item, page, at);
        if (n == 2) value_pass<2>(item, page, at);
        if (n == 1) value_pass<1>(item, page, at);
        at += n;
      }
    }
    block.fresh = false;
  }

  // N tiles of dimensions from `at` on.
  template <int N>
  void value_pass(const Item& item, const std::byte* const* page, std::int32_t at) {
    const bool fresh = block_[item.block].fresh;
    std::byte* o = o_tile(item.block, at);
    const std::byte* weights = scores_[item.buffer];
    const std::int64_t stride = 4 * static_cast<std::int64_t>(d_);
    if (fresh) {
      Tiles::template clear<0>();
      Tiles::template clear<1>();
      Tiles::template clear<2>();
      Tiles::template clear<3>();
    } else {
      // Row tiles of one dimension tile lie side by side.
      Tiles::template load<0>(o, 64);
      if (kRowTiles * N > 1) Tiles::template load<1>(o + kTileBytes, 64);
      if (kRowTiles * N > 2) Tiles::template load<2>(o + 2 * kTileBytes, 64);
      if (kRowTiles * N > 3) Tiles::template load<3>(o + 3 * kTileBytes, 64);
    }
    for (std::int32_t p = 0; p < item.pages; ++p) {
      const std::byte* v = page[p] + static_cast<std::ptrdiff_t>(at) * 64;
      const std::byte* w = weights + static_cast<std::ptrdiff_t>(p) * kPageTokens * 2;
      Tiles::template load<6>(v, stride);
      Tiles::template load<4>(w, kScoreStride);
      Tiles::template multiply_bf16<0, 4, 6>();
      if constexpr (kRowTiles == 2) {
        Tiles::template load<5>(w + kTileRows * kScoreStride, kScoreStride);
        Tiles::template multiply_bf16<1, 5, 6>();
        if constexpr (N == 2) {
          Tiles::template load<7>(v + 64, stride);
          Tiles::template multiply_bf16<3, 5, 7>();
          Tiles::template multiply_bf16<2, 4, 7>();
        }
      } else {
        if constexpr (N > 1) {
          Tiles::template load<7>(v + 64, stride);
          Tiles::template multiply_bf16<1, 4, 7>();
        }
        if constexpr (N > 2) {
          Tiles::template load<6>(v + 128, stride);
          Tiles::template multiply_bf16<2, 4, 6>();
        }
        if constexpr (N > 3) {
          Tiles::template load<7>(v + 192, stride);
          Tiles::template multiply_bf16<3, 4, 7>();
        }
      }
      fetch();
      weave(1);
    }
    Tiles::template store<0>(o, 64);
    if (kRowTiles * N > 1) Tiles::template store<1>(o + kTileBytes, 64);
    if (kRowTiles * N > 2) Tiles::template store<2>(o + 2 * kTileBytes, 64);
    if (kRowTiles * N > 3) Tiles::template store<3>(o + 3 * kTileBytes, 64);
  }

  void rescale(std::int32_t b) {
    Block& block = block_[b];
    block.rescale = false;
    for (std::int32_t r = 0; r < block.rows; ++r) {
      float& keep = keep_[b * kRows + r];
      if (!block.fresh && keep != 1) {
        const __m512 factor = _mm512_set1_ps(keep);
        float* o = o_row(b, r);
        for (std::int32_t i = 0; i < dim_tiles_; ++i, o += kRows * 16) {
          _mm512_store_ps(o, _mm512_mul_ps(_mm512_load_ps(o), factor));
        }
      }
      keep = 1;
    }
  }

  // Pages with tokens that no row of the block sees are replaced by copies with zeros there: a weight of zero
  // does not keep out what an earlier owner may have left, or a later token's NaN.
  void clean_edges(const Block& block, const Item& item, const std::byte** page) {
    int used = 0;
    for (const std::int32_t p : {0, item.pages - 1}) {
      const std::int32_t start = (item.page + p) * kPageTokens;
      const std::int32_t begin = most(0, block.see_begin - start);
      const std::int32_t end = least(kPageTokens, block.see_end - start);
      if ((begin == 0 && end == kPageTokens) || page[p] == edge_[0]) continue;
      std::byte* to = edge_[used++];
      for (std::int32_t pair = 0; pair < kPageTokens / 2; ++pair) {
        std::uint32_t keep = 0;
        if (2 * pair >= begin && 2 * pair < end) keep |= 0xffffU;
        if (2 * pair + 1 >= begin && 2 * pair + 1 < end) keep |= 0xffff0000U;
        const __m512i mask = _mm512_set1_epi32(static_cast<int>(keep));
        const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(pair) * 4 * d_;
        for (std::int32_t i = 0; i < dim_tiles_; ++i) {
          _mm512_store_si512(to + row + 64 * i,
                             _mm512_and_si512(mask, _mm512_loadu_si512(page[p] + row + 64 * i)));
        }
      }
      page[p] = to;
    }
  }

  // -- weights, woven between the products

  void begin_weave(const Item& item, std::int32_t value_steps, std::int32_t score_steps) {
    weave_item_ = item;
    weave_rows_ = block_[item.block].rows;
    weave_done_ = 0;
    weave_steps_ = most(1, value_steps + score_steps);
    weave_credit_ = 0;
  }
  SHOAL_FLAT void weave(std::int32_t steps) {
    weave_credit_ += steps * weave_rows_;
    while (weave_credit_ >= weave_steps_ && weave_done_ < weave_rows_) {
      weave_credit_ -= weave_steps_;
      weigh_row(weave_done_++);
    }
  }
  void finish_weave() {
    while (weave_done_ < weave_rows_) weigh_row(weave_done_++);
  }

  SHOAL_FLAT void weigh_row(std::int32_t r) {
    const std::int32_t index = weave_item_.block * kRows + r;
    std::byte* row = scores_[weave_item_.buffer] + r * kScoreStride;
    if (t_.cap_log2 != 0) cap_row(row);
    const std::int32_t p = position(index);
    const std::int32_t start = weave_item_.page * kPageTokens;
    const std::int32_t tokens = weave_item_.pages * kPageTokens;
    const std::int32_t end = least(tokens, p + 1 - start);
    const std::int32_t begin = t_.window > 0 ? most(0, p + 1 - t_.window - start) : 0;
    if (begin == 0 && end == tokens && m_[index] != kLowest) {
      whole_row(index, row);
    } else {
      part_row(index, row, begin, end);
    }
  }

  __attribute__((noinline)) void cap_row(std::byte* row) const {
    auto* s = reinterpret_cast<float*>(row);
    const __m512 cap = _mm512_set1_ps(t_.cap_log2);
    for (std::int32_t i = 0; i < weave_item_.pages * kPageTokens; i += 16) {
      _mm512_store_ps(s + i, _mm512_mul_ps(cap, tanh_of<VecAvx512>(_mm512_load_ps(s + i))));
    }
  }

  SHOAL_FLAT void whole_row(std::int32_t index, std::byte* row) {
    const __m512 base = _mm512_set1_ps(m_[index]);
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (std::int32_t i = 0; i < weave_item_.pages; ++i) {
      __m512 a = _mm512_load_ps(row + 128 * i);
      __m512 b = _mm512_load_ps(row + 128 * i + 64);
      _mm512_store_ps(row_ + 32 * i, a);
      _mm512_store_ps(row_ + 32 * i + 16, b);
      a = exp2_cubic(_mm512_sub_ps(a, base));
      b = exp2_cubic(_mm512_sub_ps(b, base));
      even = _mm512_add_ps(even, a);
      odd = _mm512_add_ps(odd, b);
      store_pair(row + 64 * i, a, b);
    }
    even = _mm512_add_ps(even, odd);
    // Negated, so that NaN goes there too.
    if (_mm512_cmp_ps_mask(even, _mm512_set1_ps(kRaiseAbove), _CMP_NLE_UQ) != 0) [[unlikely]] {
      raise(index, row, 0, weave_item_.pages * kPageTokens);
      return;
    }
    l_[index] = _mm512_add_ps(l_[index], even);
  }

  __attribute__((noinline)) void part_row(std::int32_t index, std::byte* row, std::int32_t begin,
                                          std::int32_t end) {
    if (begin >= end) {
      for (std::int32_t i = 0; i < weave_item_.pages; ++i)
        _mm512_store_si512(row + 64 * i, _mm512_setzero_si512());
      return;
    }
    if (m_[index] == kLowest) {
      const std::int32_t at = begin / 16 * 16;
      const __m512 first = _mm512_mask_mov_ps(_mm512_set1_ps(kLowest), lanes(begin - at, end - at),
                                              _mm512_load_ps(row + 4 * at));
      m_[index] = VecAvx512::reduce_max(first);
    }
    for (std::int32_t i = 0; i < weave_item_.pages * kPageTokens; i += 16) {
      _mm512_store_ps(row_ + i, _mm512_load_ps(row + 4 * i));
    }
    const __m512 sum = weights_of(row, m_[index], begin, end);
    if (_mm512_cmp_ps_mask(sum, _mm512_set1_ps(kRaiseAbove), _CMP_NLE_UQ) != 0) [[unlikely]] {
      raise(index, row, begin, end);
      return;
    }
    l_[index] = _mm512_add_ps(l_[index], sum);
  }

  // Takes the scores of row_ relative to their own maximum, where that is above the reference so far.
  __attribute__((noinline)) void raise(std::int32_t index, std::byte* row, std::int32_t begin,
                                       std::int32_t end) {
    __m512 top = _mm512_set1_ps(kLowest);
    for (std::int32_t i = begin / 16 * 16; i < end; i += 16) {
      top = _mm512_mask_max_ps(top, lanes(begin - i, end - i), top, _mm512_load_ps(row_ + i));
    }
    const float old = m_[index];
    const float highest = VecAvx512::reduce_max(top);
    // NaN passes: all weights of such a row are NaN.
    const float m = old > highest ? old : highest;
    if (m == kLowest && !any_nan(begin, end)) {  // scores of minus infinity: as if unseen
      for (std::int32_t i = 0; i < weave_item_.pages; ++i) {
        _mm512_store_si512(row + 64 * i, _mm512_setzero_si512());
      }
      return;
    }
    const float keep = old == kLowest ? 0 : _mm512_cvtss_f32(exp2_of<VecAvx512>(_mm512_set1_ps(old - m)));
    m_[index] = m;
    keep_[index] *= keep;
    block_[weave_item_.block].rescale = true;
    l_[index] = _mm512_fmadd_ps(l_[index], _mm512_set1_ps(keep), weights_of(row, m, begin, end));
  }

  bool any_nan(std::int32_t begin, std::int32_t end) const {
    std::uint32_t found = 0;
    for (std::int32_t i = begin / 16 * 16; i < end; i += 16) {
      const __m512 s = _mm512_load_ps(row_ + i);
      found |= _mm512_mask_cmp_ps_mask(lanes(begin - i, end - i), s, s, _CMP_UNORD_Q);
    }
    return found != 0;
  }

  // Weights of the scores in row_ to row; gives their sums.
  __m512 weights_of(std::byte* row, float m, std::int32_t begin, std::int32_t end) const {
    const __m512 base = _mm512_set1_ps(m);
    __m512 sum = _mm512_setzero_ps();
    for (std::int32_t i = 0; i < weave_item_.pages; ++i) {
      const std::int32_t at = i * kPageTokens;
      const __m512 a = _mm512_maskz_mov_ps(lanes(begin - at, end - at),
                                           exp2_cubic(_mm512_sub_ps(_mm512_load_ps(row_ + at), base)));
      const __m512 b = _mm512_maskz_mov_ps(lanes(begin - at - 16, end - at - 16),
                                           exp2_cubic(_mm512_sub_ps(_mm512_load_ps(row_ + at + 16), base)));
      sum = _mm512_add_ps(sum, _mm512_add_ps(a, b));
      store_pair(row + 64 * i, a, b);
    }
    return sum;
  }

  static SHOAL_FLAT void store_pair(std::byte* to, __m512 a, __m512 b) {
    const __m512bh v = _mm512_cvtne2ps_pbh(b, a);
    _mm512_store_si512(to, reinterpret_cast<const __m512i&>(v));
  }

  const AttentionRows& t_;
  const std::int32_t d_;
  const std::int32_t pairs_;
  const std::int32_t steps_;
  const std::int32_t dim_tiles_;
  const std::int32_t blocks_;
  std::byte* scores_[2];
  float* row_;
  std::byte* edge_[2];
  std::byte* q_;
  std::byte* o_;
  __m512* l_;
  float* m_;
  float* keep_;
  Block* block_;
  TileConfig score_config_;
  TileConfig value_config_;
  bool same_config_ = true;

  std::int32_t chunk_ = 0;
  std::int32_t next_block_ = 0;
  KvPages fetch_;  // what is left to fetch of the next chunk
  std::int32_t fetch_line_ = 0;
  std::int32_t fetch_lines_ = 0;
  Item weave_item_{};
  std::int32_t weave_rows_ = 0;
  std::int32_t weave_done_ = 0;
  std::int32_t weave_steps_ = 1;
  std::int32_t weave_credit_ = 0;
};

template <class Tiles>
struct TileAttention {
  static bool takes_head_dim(std::int32_t head_dim) { return head_dim % 16 == 0 && head_dim <= 256; }
  static std::size_t workspace_bytes(std::int32_t rows, std::int32_t head_dim) {
    return rows <= kTileRows ? RowFolder<Tiles, 1>::workspace_bytes(rows, head_dim)
                             : RowFolder<Tiles, 2>::workspace_bytes(rows, head_dim);
  }
  static bool fold_rows(const AttentionRows& rows, std::byte* workspace, AttentionState state, float* out,
                        std::int64_t out_stride) {
    return rows.rows <= kTileRows ? fold<1>(rows, workspace, state, out, out_stride)
                                  : fold<2>(rows, workspace, state, out, out_stride);
  }

 private:
  template <int kRowTiles>
  static bool fold(const AttentionRows& rows, std::byte* workspace, AttentionState state, float* out,
                   std::int64_t out_stride) {
    RowFolder<Tiles, kRowTiles> folder(rows, workspace);
    if (!folder.edges_are_finite()) return false;
    folder.run();
    folder.give(state, out, out_stride);
    return true;
  }
};

template <class Tiles>
constexpr ChunkedAttention make_tile_attention() {
  using A = TileAttention<Tiles>;
  // 64 rows x one page at head size 64 are 0.5 MFLOP, 0.5 us; 8 KiB from memory take as long.
  return {A::takes_head_dim, 1, 64, A::workspace_bytes, A::fold_rows};
}

#undef SHOAL_FLAT

}  // namespace
}  // namespace shoal::kernels
