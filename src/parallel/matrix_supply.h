// Where packed matrices come from while a model loads: packed from its files, or from a packed cache, a
// folder that holds them from an earlier load.
//
// All matrices are announced by expect() in the order in which they will be asked for, then start(), then
// take() for each of them. Where the cache has no such file, what is packed is written there on the way, and
// finish() says that everything can be taken a second time, from the file: then ranks that started together
// share it, too.
//
// Thread-safety: belongs to the loading thread; packing and checking run on the context's pool.
// Ownership: borrows the model's files. Matrices from a packed file share it; all others own their bytes.
// Invariants: the same bytes, wherever they come from. The cache is never needed: whatever is wrong with it
//   is said in one warning, and the files serve.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/mapped_file.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "parallel/packed_file.h"
#include "parallel/weight_stream.h"

namespace shoal::parallel {

struct PackedCache {
  std::filesystem::path folder;
  std::string model;  // its fingerprint, of which the weights' type is a part
};

class MatrixSupply {
 public:
  MatrixSupply(std::vector<const MappedFile*> files, const kernels::Context& context)
      : stream_(std::move(files)), context_(context) {}

  // Fails as PackedMatrix::pack, but for memory.
  Status expect(std::span<const kernels::WeightSource> stacked, std::span<const std::int64_t> segment_ends);
  // Bytes of all announced matrices, packed.
  std::uint64_t packed_bytes() const { return packed_bytes_; }
  // around_cache: see formats::ReadAhead. progress: of checking a file of the cache.
  Status start(const std::optional<PackedCache>& cache, bool around_cache,
               const PackedFile::Progress& progress);
  bool started() const { return started_; }
  // Whether take() gives parts of a mapped file.
  bool mapped() const { return file_ != nullptr; }
  // The next matrix in the order of expect().
  Expected<kernels::PackedMatrix> take(std::span<const kernels::WeightSource> stacked,
                                       std::span<const std::int64_t> segment_ends);
  // After the last. True where they have just been written: a second round of take() gives them from there.
  bool finish();

 private:
  formats::Fingerprint key(const std::string& model) const;
  void open_cache(const PackedCache& cache, const PackedFile::Progress& progress);
  void store(const kernels::PackedMatrix& matrix);

  WeightStream stream_;
  kernels::Context context_;
  bool started_ = false;
  std::uint64_t packed_bytes_ = 0;
  std::vector<std::size_t> sizes_;       // of each matrix
  std::vector<std::int64_t> described_;  // numbers that tell the matrices from all others
  std::size_t next_ = 0;
  std::filesystem::path folder_;
  std::shared_ptr<const PackedFile> file_;  // null where matrices are packed
  std::optional<PackedFileWriter> writer_;
  bool replace_ = false;  // the file of this name is damaged
};

}  // namespace shoal::parallel
