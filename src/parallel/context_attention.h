// Attention over pages that lie with several coordinates of a worker (docs/context-parallel.md): brings pages
// here, or takes queries to where pages are, and puts the parts together.
//
// Thread-safety: belongs to the rank's executor thread; computes on the context's threads.
// Ownership: borrows context, peers, and until the next begin() the work; owns scratch, which only grows.
// Invariants:
//   1. Every coordinate makes the same calls for the same layers, also one that computes no token of its own:
//      it may hold what others attend to.
//   2. In strict mode the bits are those of kernels::attention() with all pages in one pool.
//   3. Failures are the peers' status; what is computed after one is garbage.

#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/context.h"
#include "layout/context_moves.h"
#include "parallel/peers.h"
#include "tensor/buffer.h"
#include "tensor/kv_layout.h"
#include "tensor/matrix.h"

namespace shoal::parallel {

class ContextAttention {
 public:
  // What the work of one KV group comes to; made once a pass, used by each of its layers.
  class Plan {
   public:
    // strict: a result of its own for each piece.
    void make(const ContextWork& work, std::int32_t own, std::int32_t window, bool strict);
    // Whether this coordinate has anything to do with others, or tokens of its own.
    bool any() const { return !direct_.empty() || moves_[0].any() || moves_[1].any(); }

   private:
    friend class ContextAttention;
    // A part of a span's result: rows of own states, or of what came from a coordinate.
    struct Part {
      std::int32_t source = 0;  // coordinate
      std::int64_t first_row = 0;
      bool begins_segment = false;
    };
    struct Fold {
      std::int32_t first_row = 0;
      std::int32_t rows = 0;
      std::size_t first_part = 0;
      std::size_t parts = 0;
    };
    // An entry that names a page which has come, by its place in the owner's bank.
    struct Landed {
      std::size_t table = 0;
      std::size_t page = 0;
      std::int32_t owner = 0;
    };
    void add_direct(const ContextSpan& span);
    void add_states(const ContextSpan& span, std::int32_t first_row,
                    std::vector<kernels::AttentionSpan>& spans, std::int64_t& rows);
    void add_folds(const ContextWork& work, ContextTraffic traffic);

    std::int32_t own_ = 0;
    std::int32_t window_ = 0;
    bool pieces_ = false;
    ContextMoves moves_[2];                           // by ContextTraffic
    std::vector<kernels::AttentionSpan> direct_;      // own spans whose pages are all here, or come
    std::vector<kernels::AttentionSpan> own_states_;  // own spans whose queries travel
    std::vector<std::vector<kernels::AttentionSpan>> foreign_[2];  // by traffic and coordinate
    std::vector<std::vector<std::int32_t>> queries_out_[2];        // own spans, by traffic and coordinate
    std::int64_t own_state_rows_ = 0;
    std::vector<kernels::AttentionSpan> masked_;  // computed for nothing
    std::int64_t masked_rows_ = 0;
    std::vector<Fold> folds_[2];
    std::vector<Part> parts_[2];
    std::deque<std::vector<std::int32_t>> tables_;  // of slots; kept for their capacity
    std::size_t tables_used_ = 0;
    std::vector<Landed> landed_;
    std::vector<PagePiece> runs_;
    const ContextWork* work_ = nullptr;

    std::vector<std::int32_t>& next_table();
  };

  ContextAttention(const kernels::Context& context, Peers& peers) : context_(context), peers_(peers) {}

  // Keys and values [rows, kv_heads * head_dim] of own tokens whose page another coordinate owns go there,
  // those of its tokens come into this pool; what is written where it was computed is written by the caller.
  void exchange_tokens(const ContextWork& work, const kernels::AttentionShape& shape, const KvView& pool,
                       MatrixView<const float> k, MatrixView<const float> v);
  // q, out: rows of this coordinate's batch, [query_heads * head_dim].
  void attend(Plan& plan, const kernels::AttentionShape& shape, const KvView& pool, MatrixView<const float> q,
              MatrixView<float> out);

 private:
  // Bytes for the length of a layer; one for each use and coordinate.
  std::span<std::byte> room(std::size_t use, std::int32_t coordinate, std::size_t bytes);
  MatrixView<float> rows_in(std::size_t use, std::int32_t coordinate, std::int64_t rows,
                            std::int64_t columns);
  void exchange_queries(Plan& plan, ContextTraffic traffic, MatrixView<const float> q);
  void exchange_pages(Plan& plan, const kernels::AttentionShape& shape, const KvView& pool);
  void compute_foreign(Plan& plan, ContextTraffic traffic, const kernels::AttentionShape& shape,
                       const KvView& pool);
  void exchange_states(Plan& plan, ContextTraffic traffic, const kernels::AttentionShape& shape);
  void fold(Plan& plan, ContextTraffic traffic, const kernels::AttentionShape& shape, MatrixView<float> out);
  MatrixView<float> states_of(const Plan& plan, ContextTraffic traffic, const kernels::AttentionShape& shape,
                              std::int32_t source);
  std::int32_t bank_of(std::int32_t coordinate) const;
  void move(comm::Purpose purpose, std::uint64_t calls);

  const kernels::Context& context_;
  Peers& peers_;
  std::vector<Buffer> rooms_;
  std::vector<comm::Outgoing> out_;
  std::vector<comm::Incoming> in_;
};

}  // namespace shoal::parallel
