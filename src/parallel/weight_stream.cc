#include "parallel/weight_stream.h"

#include <algorithm>
#include <utility>

#include "tensor/dtype.h"

namespace shoal::parallel {

void WeightStream::expect(std::span<const kernels::WeightSource> stacked) {
  const std::size_t first = pieces_.size();
  std::int64_t row = 0;
  bool whole = true;
  for (const auto& source : stacked) {
    bytes_ += static_cast<std::uint64_t>(source.rows * source.bytes_per_row());
    whole = whole && row % kFeedRows == 0 && cut(source, row);
    row += source.rows;
  }
  if (!whole) {
    pieces_.resize(first);
    parts_.resize(first);
  }
  matrices_.push_back({first, pieces_.size()});
}

const MappedFile* WeightStream::file_of(const kernels::WeightSource& source) const {
  const auto holds = [&](const MappedFile* file) {
    const auto bytes = file->bytes();
    return source.data >= bytes.data() && source.data < bytes.data() + bytes.size();
  };
  const auto file = std::find_if(files_.begin(), files_.end(), holds);
  return file == files_.end() ? nullptr : *file;
}

std::pair<std::int64_t, std::int64_t> WeightStream::place_of(const kernels::WeightSource& source) const {
  const MappedFile* file = file_of(source);
  if (file == nullptr) return {-1, 0};
  return {std::find(files_.begin(), files_.end(), file) - files_.begin(), source.data - file->bytes().data()};
}

std::vector<std::int64_t> WeightStream::file_states() const {
  std::vector<std::int64_t> states;
  for (const MappedFile* file : files_) {
    states.push_back(static_cast<std::int64_t>(file->bytes().size()));
    states.push_back(file->changed());
  }
  return states;
}

void WeightStream::will_need(const kernels::WeightSource& source) const {
  if (const MappedFile* file = file_of(source)) {
    file->will_need(static_cast<std::size_t>(source.data - file->bytes().data()),
                    static_cast<std::size_t>(source.rows * source.stride));
  }
}

bool WeightStream::cut(const kernels::WeightSource& source, std::int64_t stacked_row) {
  const MappedFile* file = file_of(source);
  if (file == nullptr || source.rows <= 0) return false;
  const auto begin = static_cast<std::size_t>(source.data - file->bytes().data());
  const std::int64_t last_row = source.bytes_per_row();
  const std::int64_t most =
      (static_cast<std::int64_t>(formats::ReadAhead::kLongest) - last_row) / source.stride + 1;
  const std::int64_t rows = most / kFeedRows * kFeedRows;
  if (rows <= 0) return false;
  for (std::int64_t row = 0; row < source.rows; row += rows) {
    const std::int64_t count = std::min(rows, source.rows - row);
    pieces_.push_back({stacked_row + row, count, nullptr, pieces_.size()});
    parts_.push_back({file, begin + static_cast<std::size_t>(row * source.stride),
                      static_cast<std::size_t>((count - 1) * source.stride + last_row)});
  }
  return true;
}

Status WeightStream::start(bool around_cache) {
  // What is still read through the mappings is small and far apart: norms now, rows of the embedding later.
  for (const MappedFile* file : files_) file->expect_random();
  SHOAL_ASSIGN(reader, formats::ReadAhead::start(std::exchange(parts_, {}), around_cache));
  reader_.emplace(std::move(reader));
  return {};
}

kernels::WeightFeed* WeightStream::feed(std::span<const kernels::WeightSource> stacked) {
  if (!reader_ || matrix_ == matrices_.size()) return nullptr;
  const Matrix& matrix = matrices_[matrix_++];
  std::int64_t rows = 0;
  for (const auto& source : stacked) rows += source.rows;
  piece_ = matrix.first;
  end_ = matrix.last;
  if (piece_ == end_) {
    for (const auto& source : stacked) will_need(source);
  }
  if (piece_ == end_ || pieces_[end_ - 1].first_row + pieces_[end_ - 1].rows != rows) return nullptr;
  return this;
}

Expected<std::optional<kernels::WeightFeed::Piece>> WeightStream::next() {
  Piece piece;
  {
    const std::lock_guard lock(mutex_);
    if (piece_ == end_) return std::optional<Piece>();
    piece = pieces_[piece_++];
  }
  SHOAL_ASSIGN(bytes, reader_->take(piece.ticket));
  piece.data = bytes.data();
  return std::optional(piece);
}

void WeightStream::done(const Piece& piece) { reader_->give_back(piece.ticket); }

}  // namespace shoal::parallel
