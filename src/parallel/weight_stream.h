// Brings weights from their files to the packer, in pieces of a few megabytes and ahead of it.
//
// The sources of matrices are views of mapped files; here those addresses only say which bytes are meant. All
// matrices are announced by expect() in the order of packing, then start() begins to read, then feed() gives
// each matrix its pieces.
//
// Thread-safety: expect(), start() and feed() belong to the loading thread; the pool's threads share a feed.
// Ownership: borrows the files, which must outlive it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/expected.h"
#include "core/mapped_file.h"
#include "formats/read_ahead.h"
#include "kernels/matmul.h"

namespace shoal::parallel {

class WeightStream final : private kernels::WeightFeed {
 public:
  explicit WeightStream(std::vector<const MappedFile*> files) : files_(std::move(files)) {}

  // The sources of the next matrix.
  void expect(std::span<const kernels::WeightSource> stacked);
  // Number of the file that holds a source, and where in it; -1 and 0 where none does.
  std::pair<std::int64_t, std::int64_t> place_of(const kernels::WeightSource& source) const;
  // Size and time of the last change of every file: another pair, other bytes.
  std::vector<std::int64_t> file_states() const;
  // Bytes announced that are in files, whether or not they can be fed.
  std::uint64_t bytes() const { return bytes_; }
  // around_cache: see formats::ReadAhead.
  Status start(bool around_cache);
  bool started() const { return reader_.has_value(); }
  // For the next matrix in the order of expect(). Null where its bytes are to be taken from the mapping: rows
  // of many megabytes, parts that do not end with a block, bytes of no file.
  kernels::WeightFeed* feed(std::span<const kernels::WeightSource> stacked);

 private:
  struct Matrix {
    std::size_t first = 0;  // pieces [first, last)
    std::size_t last = 0;
  };
  const MappedFile* file_of(const kernels::WeightSource& source) const;
  void will_need(const kernels::WeightSource& source) const;
  bool cut(const kernels::WeightSource& source, std::int64_t stacked_row);
  Expected<std::optional<Piece>> next() override;
  void done(const Piece& piece) override;

  std::vector<const MappedFile*> files_;
  std::vector<Matrix> matrices_;
  std::vector<Piece> pieces_;  // without data
  std::vector<formats::ReadAhead::Part> parts_;
  std::uint64_t bytes_ = 0;
  std::optional<formats::ReadAhead> reader_;
  std::size_t matrix_ = 0;  // the next one that feed() is asked for
  std::mutex mutex_;
  std::size_t piece_ = 0;  // the next one that next() gives
  std::size_t end_ = 0;    // of the matrix that is being fed
};

}  // namespace shoal::parallel
