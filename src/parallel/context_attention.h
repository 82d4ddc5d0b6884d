// Attention over pages that lie with several coordinates of a worker (docs/context-parallel.md): brings pages
// here, or takes queries to where pages are, and puts the parts together.
//
// Thread-safety: belongs to the rank's executor thread; computes on the context's threads.
// Ownership: borrows context, peers, and until the next begin() the work; owns scratch, which only grows.
// Invariants:
//   1. Every coordinate makes the same calls for the same layers, also one that computes no token of its own:
//      it may hold what others attend to. Exchanges are the same on all, in the same order.
//   2. In strict mode the bits are those of kernels::attention() with all pages in one pool.
//   3. Failures are the peers' status; what is computed after one is garbage.
//   4. Pages travel while what is here is attended to, a neighbour's at a time: in the default mode each
//      one's as they have come; in strict mode, which folds by position, rows that see others' pages come
//      last.

#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
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
    // An entry of a table that names a page of another coordinate, by its place in that one's bank.
    struct Landed {
      std::size_t table = 0;
      std::size_t page = 0;
      std::int32_t owner = 0;
      std::int32_t arrival = 0;
    };
    // Rows whose pages lie with several coordinates: one state for each, into which each one's pages are
    // folded.
    struct Split {
      std::int32_t first_row = 0;
      std::int32_t rows = 0;
      std::int64_t first_state = 0;
    };
    void add_direct(const ContextSpan& span);
    bool splits(const ContextSpan& span) const;
    void add_split(const ContextSpan& span);
    void add_masked(const ContextSpan& span, kernels::AttentionSpan masked);
    void add_states(const ContextSpan& span, std::int32_t first_row,
                    std::vector<kernels::AttentionSpan>& spans, std::int64_t& rows);
    void add_folds(const ContextWork& work, ContextTraffic traffic);

    std::int32_t own_ = 0;
    std::int32_t window_ = 0;
    bool pieces_ = false;
    ContextMoves moves_[2];                          // by ContextTraffic
    std::vector<kernels::AttentionSpan> direct_;     // own spans whose pages are all here
    std::vector<kernels::AttentionSpan> late_;       // that see pages which come, all at once
    std::vector<Split> splits_;                      // that see pages which come, a coordinate's at a time
    std::vector<kernels::AttentionSpan> split_own_;  // of splits_, what is here
    std::vector<std::vector<kernels::AttentionSpan>> split_landed_;  // what comes, by coordinate
    std::int64_t split_rows_ = 0;
    std::vector<kernels::AttentionSpan> own_states_;               // own spans whose queries travel
    std::size_t own_decoded_ = 0;                                  // the first of a decoded token among them
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

  // A layer: begin(), receive(), attend(), with the same plan, shape and pool. q, k, v, out: rows of this
  // coordinate's batch, [query_heads * head_dim] and [kv_heads * head_dim]; rows whose page is this
  // coordinate's have been written to it.
  //
  // Keys and values of own tokens whose page another coordinate owns go there, and queries of decoded tokens.
  void begin(const Plan& plan, const ContextWork& work, MatrixView<const float> q, MatrixView<const float> k,
             MatrixView<const float> v);
  // What others have sent so is here, tokens in the pool. Where it is not called attend() does it, after what
  // need not wait for it.
  void receive(const kernels::AttentionShape& shape, const KvView& pool);
  void attend(Plan& plan, const kernels::AttentionShape& shape, const KvView& pool, MatrixView<const float> q,
              MatrixView<float> out);

 private:
  // Bytes for the length of a layer; one for each use and coordinate.
  std::span<std::byte> room(std::size_t use, std::int32_t coordinate, std::size_t bytes);
  MatrixView<float> rows_in(std::size_t use, std::int32_t coordinate, std::int64_t rows,
                            std::int64_t columns);
  void add_tokens(const ContextWork& work, std::int32_t with, MatrixView<const float> k,
                  MatrixView<const float> v);
  void add_queries(const Plan& plan, ContextTraffic traffic, std::int32_t with, MatrixView<const float> q);
  void own_part(Plan& plan, std::span<const kernels::AttentionSpan> spans,
                const kernels::AttentionShape& shape, const KvView& pool, MatrixView<const float> q);
  void begin_pages(Plan& plan, const kernels::AttentionShape& shape, const KvView& pool);
  bool add_pages_out(const Plan& plan, std::int32_t to, const kernels::AttentionShape& shape,
                     const KvView& pool, std::vector<comm::Outgoing>& out);
  void name_landed(Plan& plan, const kernels::AttentionShape& shape, const KvView& pool) const;
  void attend_landed(Plan& plan, std::int32_t owner, const kernels::AttentionShape& shape, const KvView& pool,
                     MatrixView<const float> q, MatrixView<float> states);
  void compute_foreign(Plan& plan, ContextTraffic traffic, const kernels::AttentionShape& shape,
                       const KvView& pool);
  // early: sent at once where the carrier keeps it.
  void begin_states(Plan& plan, ContextTraffic traffic, const kernels::AttentionShape& shape, bool early);
  void end_states(Plan& plan, ContextTraffic traffic, const kernels::AttentionShape& shape);
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
  // Between begin() and receive(). What was sent early is not in out_ any more.
  bool receiving_ = false;
  std::uint64_t calls_ = 0;
  struct Arriving {
    MatrixView<float> rows;                                     // keys, then values
    std::vector<std::pair<std::int32_t, std::int32_t>> places;  // position, slot
  };
  std::vector<Arriving> arriving_;
  // Pages on their way, by step: to the coordinate that many places on, from the one as many back.
  struct Step {
    std::vector<comm::Outgoing> out;
    std::vector<comm::Incoming> in;
  };
  std::vector<Step> steps_;
};

}  // namespace shoal::parallel
