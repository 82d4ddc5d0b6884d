// Matrix products with packed weights: y = x * W^T, the bulk of all work.
//
// Thread-safety: a PackedMatrix is immutable after packing; matmul() runs on its context's pool.
// Ownership: a PackedMatrix owns its packed copy, or shares in what owns it; the source bytes are not needed
//   afterwards.
// Invariants:
//   1. Sums run over the K segments given at packing: each segment's products are added in f32 from zero,
//      then the segments in index order. Activation blocks of 32 start anew at each segment. Outside strict
//      mode prefill by AMX runs through all of K in one chain of sums instead.
//   2. With context.strict the bits of a row of y depend on that row of x, W and the ISA alone: not on the
//      number of rows, the row's place among them, or the number of threads.
//   3. Infinities and NaN in a row of x reach that row of y only.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "kernels/context.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"

namespace shoal::kernels {

// Rows of a weight matrix as a file holds them: row-major [rows, columns], each row `stride` bytes after the
// last. Several sources that are packed as one type stack into one packed matrix (q, k, v; gate, up).
struct WeightSource {
  DType type = DType::kF32;
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  // Of `columns`, in the block that `data` begins with: a multiple of 32, where a wider block is cut.
  std::int64_t first_column = 0;
  // The type they are converted to while packing (quantise.h); absent: packed_type(type).
  std::optional<DType> pack_as = std::nullopt;

  DType target() const;
  // Bytes of a row from `data` to the end of the block that holds its last column.
  std::int64_t bytes_per_row() const;
};

// Hands packing the rows of its sources piece by piece, where they do not lie in memory.
//
// Thread-safety: next() and done() may be called from any thread of the pool.
// Invariants: the pieces hold each row once; each but the last of a matrix ends at a multiple of
//   kFeedRows of its stacked rows.
class WeightFeed {
 public:
  static constexpr std::int64_t kFeedRows = 16;
  struct Piece {
    std::int64_t first_row = 0;  // of all stacked rows; a piece lies in one source
    std::int64_t rows = 0;
    const std::byte* data = nullptr;  // of its first row; the others follow at the source's stride
    std::size_t ticket = 0;           // the feed's
  };
  virtual ~WeightFeed() = default;
  // Nothing after the last. Each piece goes back by done() before its thread asks for another.
  virtual Expected<std::optional<Piece>> next() = 0;
  virtual void done(const Piece& piece) = 0;
};

class PackedMatrix {
 public:
  // segment_ends: ascending column counts, the last equal to columns; one entry where K is not cut. For
  // quantised types every end but the last must be a multiple of 32 (16 for Q6_K's sub-blocks is not used).
  // feed: where the rows come from, whatever the sources' `data`; null: they lie there.
  // Fails with kUnsupported for types without a kernel, kExhausted for memory, or as the feed does.
  static Expected<PackedMatrix> pack(std::span<const WeightSource> stacked,
                                     std::span<const std::int64_t> segment_ends, const Context& context,
                                     WeightFeed* feed = nullptr);
  // Of what packed_bytes() gave for the same sources and segments, read only; they start at a multiple of 64
  // bytes. keeper: holds them. Fails with kCorrupt where there are not as many as packed_size().
  static Expected<PackedMatrix> adopt(std::span<const WeightSource> stacked,
                                      std::span<const std::int64_t> segment_ends,
                                      std::span<const std::byte> packed, std::shared_ptr<const void> keeper);
  // Bytes that the sources take packed. Fails as pack() where they cannot be.
  static Expected<std::size_t> packed_size(std::span<const WeightSource> stacked,
                                           std::span<const std::int64_t> segment_ends);

  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  std::int64_t rows() const;     // N: outputs
  std::int64_t columns() const;  // K: inputs
  DType type() const;
  std::size_t bytes() const { return packed_bytes().size(); }
  // The same on every machine, for one value of kPackingVersion (pack_layout.h).
  std::span<const std::byte> packed_bytes() const;
  // "q8 vnni decode, q8 amx prefill": for the start-up report.
  std::string kernel_names(const Context& context) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit PackedMatrix(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct MatmulTarget {
  const PackedMatrix* weights = nullptr;
  MatrixView<float> y;  // [x.rows, weights->rows()]
};

// Grow-only scratch for activations in the forms kernels read. One per executor.
class MatmulScratch {
 public:
  MatmulScratch();
  ~MatmulScratch();
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// x: [rows, K], f32. All targets share x and have the same K and segments; x is rounded once for all of them.
// Zero rows do nothing. y may not overlap x. Prefill is fastest (up to twice) where y and its stride are
// aligned to 64 bytes and y lies in huge pages, as in a Buffer. Where no memory is left for the rounded
// activations, all of y becomes NaN.
void matmul(const Context& context, MatmulScratch& scratch, MatrixView<const float> x,
            std::span<const MatmulTarget> targets);

}  // namespace shoal::kernels
