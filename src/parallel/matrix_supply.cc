#include "parallel/matrix_supply.h"

#include <xxhash.h>

#include <utility>
#include <vector>

#include "core/log.h"
#include "kernels/pack_layout.h"

namespace shoal::parallel {

Status MatrixSupply::expect(std::span<const kernels::WeightSource> stacked,
                            std::span<const std::int64_t> segment_ends) {
  SHOAL_ASSIGN(bytes, kernels::PackedMatrix::packed_size(stacked, segment_ends));
  sizes_.push_back(bytes);
  packed_bytes_ += bytes;
  stream_.expect(stacked);
  described_.push_back(static_cast<std::int64_t>(stacked.size()));
  for (const kernels::WeightSource& source : stacked) {
    const auto [file, offset] = stream_.place_of(source);
    described_.insert(described_.end(), {file, offset, static_cast<std::int64_t>(source.type),
                                         static_cast<std::int64_t>(source.target()), source.rows,
                                         source.columns, source.stride, source.first_column});
  }
  described_.push_back(static_cast<std::int64_t>(segment_ends.size()));
  described_.insert(described_.end(), segment_ends.begin(), segment_ends.end());
  return {};
}

formats::Fingerprint MatrixSupply::key(const std::string& model) const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const std::uint64_t start[] = {kernels::kPackingVersion, model.size(), sizes_.size()};
  XXH3_128bits_update(state.get(), start, sizeof(start));
  XXH3_128bits_update(state.get(), model.data(), model.size());
  XXH3_128bits_update(state.get(), sizes_.data(), sizes_.size() * sizeof(sizes_[0]));
  XXH3_128bits_update(state.get(), described_.data(), described_.size() * sizeof(described_[0]));
  // The fingerprint looks at both ends of each tensor only: a file that was mended in between is another one.
  const std::vector<std::int64_t> files = stream_.file_states();
  XXH3_128bits_update(state.get(), files.data(), files.size() * sizeof(files[0]));
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return {hash.high64, hash.low64};
}

Status MatrixSupply::start(const std::optional<PackedCache>& cache, bool around_cache,
                           const PackedFile::Progress& progress) {
  started_ = true;
  if (cache) open_cache(*cache, progress);
  return file_ ? Status() : stream_.start(around_cache);
}

void MatrixSupply::open_cache(const PackedCache& cache, const PackedFile::Progress& progress) {
  folder_ = cache.folder;
  const PackedFileLayout layout(key(cache.model), sizes_);
  auto file = PackedFile::open(folder_, layout, *context_.pool, progress);
  if (file) {
    log(LogLevel::kInfo, "packed_cache.opened", "file={} mib={}", (folder_ / layout.file_name()).string(),
        layout.file_bytes() >> 20);
    file_ = std::make_shared<const PackedFile>(*std::move(file));
    return;
  }
  // A folder that cannot be read cannot be written either: one warning is enough.
  if (file.error().code() == ErrorCode::kCorrupt) {
    log(LogLevel::kWarn, "packed_cache.ignored", "reason=\"{}\" instead=\"it is written anew\"",
        file.error().message());
    replace_ = true;
  }
  auto writer = PackedFileWriter::begin(folder_, layout);
  if (writer) {
    writer_.emplace(*std::move(writer));
  } else {
    log(LogLevel::kWarn, "packed_cache.unwritten", "reason=\"{}\"", writer.error().message());
  }
}

Expected<kernels::PackedMatrix> MatrixSupply::take(std::span<const kernels::WeightSource> stacked,
                                                   std::span<const std::int64_t> segment_ends) {
  if (next_ == sizes_.size()) return Status(ErrorCode::kInternal, "a matrix that was not announced");
  const std::size_t index = next_++;
  if (file_) return kernels::PackedMatrix::adopt(stacked, segment_ends, file_->matrix(index), file_);
  SHOAL_ASSIGN(matrix, kernels::PackedMatrix::pack(stacked, segment_ends, context_, stream_.feed(stacked)));
  if (writer_) store(matrix);
  return std::move(matrix);
}

void MatrixSupply::store(const kernels::PackedMatrix& matrix) {
  const Status written = writer_->append(matrix.packed_bytes(), *context_.pool);
  if (written.ok()) return;
  log(LogLevel::kWarn, "packed_cache.unwritten", "reason=\"{}\"", written.message());
  writer_.reset();
}

bool MatrixSupply::finish() {
  if (!writer_) return false;
  const PackedFileLayout layout = writer_->layout();
  Status status = writer_->commit(replace_);
  writer_.reset();
  if (status.ok()) {
    auto file = PackedFile::open(folder_, layout, *context_.pool);
    if (file) {
      log(LogLevel::kInfo, "packed_cache.written", "file={} mib={}", (folder_ / layout.file_name()).string(),
          layout.file_bytes() >> 20);
      file_ = std::make_shared<const PackedFile>(*std::move(file));
      next_ = 0;
      return true;
    }
    status = file.error();
  }
  log(LogLevel::kWarn, "packed_cache.unwritten", "reason=\"{}\"", status.message());
  return false;
}

}  // namespace shoal::parallel
