#include "kernels/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/quantise.h"

namespace shoal::kernels {
namespace {

using Byte = std::uint8_t;
using Impl = PackedMatrix::Impl;

Status check_sources(std::span<const WeightSource> stacked, std::span<const std::int64_t> segment_ends) {
  if (stacked.empty())
    return Status(ErrorCode::kInvalidArgument, "a packed matrix needs at least one source");
  const WeightSource& first = stacked.front();
  const DType target = first.target();
  if (!can_pack(target)) {
    return Status(ErrorCode::kUnsupported,
                  fmt::format("weights of type {} have no matrix kernel", dtype_name(target)));
  }
  // The widest real matrices have 2^15 to 2^17 inputs; 2^24 keeps offsets inside a block in 32 bits.
  // Wider blocks are taken apart into steps, which is where they may be cut.
  const std::int64_t grain = std::min(block_elements(target), kStepInputs);
  if (first.columns <= 0 || first.columns > (1 << 24) || first.columns % grain != 0) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{} weights cannot have {} columns", dtype_name(target), first.columns));
  }
  std::int64_t rows = 0;
  bool quantised = is_quantised(target);
  for (const WeightSource& source : stacked) {
    if (source.target() != target || source.columns != first.columns ||
        source.first_column != first.first_column) {
      return Status(ErrorCode::kInvalidArgument, "stacked weights must share their type and columns");
    }
    const std::int64_t source_grain = std::min(block_elements(source.type), kStepInputs);
    if (!can_convert(source.type, target) || source.columns % source_grain != 0 || source.first_column < 0 ||
        source.first_column % source_grain != 0 || source.first_column >= block_elements(source.type)) {
      return Status(ErrorCode::kUnsupported,
                    fmt::format("{} weights of {} columns cannot become {}", dtype_name(source.type),
                                source.columns, dtype_name(target)));
    }
    quantised = quantised || is_quantised(source.type);
    if (source.rows <= 0 || source.rows > std::numeric_limits<std::int32_t>::max() ||
        source.data == nullptr || source.stride < source.bytes_per_row()) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("a weight source of {} rows with stride {} holds no {} matrix of {} columns",
                                source.rows, source.stride, dtype_name(source.type), source.columns));
    }
    rows += source.rows;
  }
  if (rows > std::numeric_limits<std::int32_t>::max()) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{} stacked rows are too many", rows));
  }
  std::int64_t last = 0;
  for (const std::int64_t end : segment_ends) {
    const bool whole = end == first.columns || !quantised || end % kStepInputs == 0;
    if (end <= last || end > first.columns || !whole) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} weights of {} columns cannot be cut at {}",
                                                             dtype_name(target), first.columns, end));
    }
    last = end;
  }
  if (last != first.columns) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("the last segment ends at {}, not at column {}", last, first.columns));
  }
  return {};
}

// first_column: of the matrix, in its first block.
void lay_out(Impl& m, std::span<const std::int64_t> segment_ends, std::int64_t first_column) {
  std::int64_t begin = 0;
  for (const std::int64_t end : segment_ends) {
    m.segments.push_back({begin, end, m.steps});
    m.steps += (end - begin + kStepInputs - 1) / kStepInputs;
    const std::int64_t grain = std::max<std::int64_t>(block_elements(m.type), kStepInputs);
    const bool cut_at_blocks = header_bytes(m.type) > 0;
    for (std::int64_t k = begin; k < end;) {
      const std::int64_t block_end = ((first_column + k) / grain + 1) * grain - first_column;
      const std::int64_t run_end = cut_at_blocks ? std::min(end, block_end) : end;
      m.runs.push_back(
          {static_cast<std::int32_t>((run_end - k + kStepInputs - 1) / kStepInputs), run_end == end});
      k = run_end;
    }
    begin = end;
  }
  std::size_t at = 0;
  for (const Run& run : m.runs) {
    const std::size_t header = at;
    at += static_cast<std::size_t>(header_bytes(m.type));
    for (int s = 0; s < run.steps; ++s, at += static_cast<std::size_t>(step_bytes(m.type))) {
      m.header_at.push_back(static_cast<std::uint32_t>(header));
      m.step_at.push_back(static_cast<std::uint32_t>(at));
    }
  }
  m.block_bytes = at;
}

// Four codes as one dword, the first in the lowest byte.
std::uint32_t four_codes(const Byte* q) {
  std::uint32_t v;
  std::memcpy(&v, q, sizeof(v));
  return v;
}

// Writes 32 codes of output `column` into the payload of a step.
void write_codes(int bits, const Byte* q, std::int64_t column, Byte* payload) {
  const auto put = [&](int vector, std::uint32_t dword) {
    std::memcpy(payload + 64 * vector + 4 * column, &dword, sizeof(dword));
  };
  if (bits == 8) {
    for (int g = 0; g < 8; ++g) put(g, four_codes(q + 4 * g));
    return;
  }
  constexpr std::uint32_t kLow = 0x0f0f0f0fU;
  for (int g = 0; g < 4; ++g)
    put(g, (four_codes(q + 8 * g) & kLow) | (four_codes(q + 8 * g + 4) & kLow) << 4);
  if (bits == 5) {
    std::uint32_t fifth = 0;
    for (int g = 0; g < 8; ++g) fifth |= (four_codes(q + 4 * g) >> 4 & 0x01010101U) << g;
    put(4, fifth);
  } else if (bits == 6) {
    for (int h = 0; h < 2; ++h) {
      std::uint32_t upper = 0;
      for (int g = 0; g < 4; ++g) upper |= (four_codes(q + 16 * h + 4 * g) >> 4 & 0x03030303U) << 2 * g;
      put(4 + h, upper);
    }
  }
}

void put_half(Byte* at, std::int64_t index, F16 value) { std::memcpy(at + 2 * index, &value, sizeof(value)); }

void write_header(DType type, const WeightBlock& block, std::int64_t column, Byte* header) {
  put_half(header, column, block.d);
  if (scheme_of(type) == Scheme::kSuperMin) put_half(header + 32, column, block.m);
}

void write_quantised_step(DType type, const WeightBlock& block, std::int64_t column, Byte* step) {
  switch (scheme_of(type)) {
    case Scheme::kScaleMin:
      put_half(step + 32, column, block.m);
      [[fallthrough]];
    case Scheme::kScale:
      put_half(step, column, block.d);
      break;
    case Scheme::kSuperMin:
      step[column] = static_cast<Byte>(block.sc[0]);
      step[16 + column] = block.mn[0];
      break;
    case Scheme::kSuper:
      step[column] = static_cast<Byte>(block.sc[0]);
      step[16 + column] = static_cast<Byte>(block.sc[1]);
      break;
    default:
      break;
  }
  write_codes(payload_bits(type), block.q, column, step + scale_bytes(type));
}

// One row of the source.
struct Row {
  const std::byte* data = nullptr;
  DType type = DType::kF32;
  std::int64_t first_column = 0;  // what is column 0 here
};

// n: inputs of this step, below 32 at the end of a segment.
void write_plain_step(DType type, Row row, std::int64_t k, std::int64_t n, std::int64_t column, Byte* step) {
  const std::int64_t element = payload_bits(type) / 8;
  std::byte converted[4 * kStepInputs];
  const std::byte* values = row.data + (row.first_column + k) * element;
  if (row.type != type) {
    convert_values(row.type, type, row.data, row.first_column + k, n, converted);
    values = converted;
  }
  std::int64_t i = 0;
  if (type == DType::kBF16) {
    for (; i + 2 <= n; i += 2) std::memcpy(step + 32 * i + 4 * column, values + 2 * i, 4);
    if (i < n) std::memcpy(step + 32 * i + 4 * column, values + 2 * i, 2);
  } else if (type == DType::kF16) {
    for (; i < n; ++i) std::memcpy(step + 2 * (kBlockColumns * i + column), values + 2 * i, 2);
  } else {
    for (; i < n; ++i) std::memcpy(step + 4 * (kBlockColumns * i + column), values + 4 * i, 4);
  }
}

// A block starts as zeros; columns past the last row stay so.
void pack_block(const Impl& m, std::span<const Row> rows, Isa isa, Byte* out) {
  const bool quantised = scheme_of(m.type) != Scheme::kNone;
  std::size_t run_index = 0;
  for (const Segment& segment : m.segments) {
    std::int64_t k = segment.begin;
    while (k < segment.end) {
      const Run& run = m.runs[run_index++];
      if (header_bytes(m.type) > 0) {
        for (std::size_t c = 0; c < rows.size(); ++c) {
          write_header(m.type,
                       convert_block(rows[c].type, m.type, rows[c].data, rows[c].first_column + k, isa),
                       static_cast<std::int64_t>(c), out);
        }
        out += header_bytes(m.type);
      }
      for (int s = 0; s < run.steps; ++s, k += kStepInputs, out += step_bytes(m.type)) {
        for (std::size_t c = 0; c < rows.size(); ++c) {
          const auto column = static_cast<std::int64_t>(c);
          if (quantised) {
            write_quantised_step(
                m.type, convert_block(rows[c].type, m.type, rows[c].data, rows[c].first_column + k, isa),
                column, out);
          } else {
            write_plain_step(m.type, rows[c], k, std::min(kStepInputs, segment.end - k), column, out);
          }
        }
      }
    }
  }
}

// Packs blocks [first, last); row_at(r) is stacked row r.
template <typename RowAt>
void pack_blocks(Impl& m, std::int64_t first, std::int64_t last, Isa isa, RowAt&& row_at) {
  Row rows[kBlockColumns];
  for (std::int64_t block = first; block < last; ++block) {
    const std::int64_t begin = block * kBlockColumns;
    const std::int64_t count = std::min(kBlockColumns, m.rows - begin);
    if (count <= 0) continue;
    for (std::int64_t c = 0; c < count; ++c) rows[c] = row_at(begin + c);
    pack_block(m, std::span(rows).first(static_cast<std::size_t>(count)), isa,
               m.own.as<Byte>() + static_cast<std::size_t>(block) * m.block_bytes);
  }
}

// The source that holds a stacked row, and the row's number in it.
struct StackedRow {
  const WeightSource* source = nullptr;
  std::int64_t row = 0;
};
StackedRow find_row(std::span<const WeightSource> stacked, std::int64_t row) {
  const WeightSource* source = stacked.data();
  while (row >= source->rows) row -= (source++)->rows;
  return {source, row};
}

void pack_in_memory(Impl& m, std::span<const WeightSource> stacked, PairRange share, Isa isa) {
  pack_blocks(m, 2 * share.begin, 2 * share.end, isa, [&](std::int64_t r) {
    const StackedRow at = find_row(stacked, r);
    return Row{at.source->data + at.row * at.source->stride, at.source->type, at.source->first_column};
  });
}

Status pack_from(WeightFeed& feed, Impl& m, std::span<const WeightSource> stacked, Isa isa) {
  for (;;) {
    SHOAL_ASSIGN(piece, feed.next());
    if (!piece) return {};
    const WeightSource& source = *find_row(stacked, piece->first_row).source;
    const std::int64_t end = piece->first_row + piece->rows;
    pack_blocks(
        m, piece->first_row / kBlockColumns, (end + kBlockColumns - 1) / kBlockColumns, isa,
        [&](std::int64_t r) {
          return Row{piece->data + (r - piece->first_row) * source.stride, source.type, source.first_column};
        });
    feed.done(*piece);
  }
}

// Everything but the bytes.
Expected<std::unique_ptr<Impl>> shape_of(std::span<const WeightSource> stacked,
                                         std::span<const std::int64_t> segment_ends) {
  SHOAL_TRY(check_sources(stacked, segment_ends));
  auto impl = std::make_unique<Impl>();
  Impl& m = *impl;
  m.type = stacked.front().target();
  m.columns = stacked.front().columns;
  for (const WeightSource& source : stacked) m.rows += source.rows;
  m.pairs = (m.rows + kPairColumns - 1) / kPairColumns;
  lay_out(m, segment_ends, stacked.front().first_column);
  return impl;
}

std::size_t size_of(const Impl& m) { return m.block_bytes * 2 * static_cast<std::size_t>(m.pairs); }

}  // namespace

Expected<std::size_t> PackedMatrix::packed_size(std::span<const WeightSource> stacked,
                                                std::span<const std::int64_t> segment_ends) {
  SHOAL_ASSIGN(impl, shape_of(stacked, segment_ends));
  return size_of(*impl);
}

Expected<PackedMatrix> PackedMatrix::adopt(std::span<const WeightSource> stacked,
                                           std::span<const std::int64_t> segment_ends,
                                           std::span<const std::byte> packed,
                                           std::shared_ptr<const void> keeper) {
  SHOAL_ASSIGN(impl, shape_of(stacked, segment_ends));
  if (packed.size() != size_of(*impl)) {
    return Status(ErrorCode::kCorrupt,
                  fmt::format("a packed {} matrix of {} x {} has {} bytes, not {}", dtype_name(impl->type),
                              impl->columns, impl->rows, size_of(*impl), packed.size()));
  }
  impl->data = packed;
  impl->keeper = std::move(keeper);
  return PackedMatrix(std::move(impl));
}

Expected<PackedMatrix> PackedMatrix::pack(std::span<const WeightSource> stacked,
                                          std::span<const std::int64_t> segment_ends, const Context& context,
                                          WeightFeed* feed) {
  SHOAL_ASSIGN(impl, shape_of(stacked, segment_ends));
  Impl& m = *impl;
  SHOAL_ASSIGN(own, Buffer::allocate(size_of(m), "packed weights"));
  m.own = std::move(own);
  m.data = {m.own.data(), m.own.size()};

  // Who writes a page first places it. From memory each thread packs what it will read later; pieces of a
  // feed go to whichever thread is free, so that one that waits for a page holds up no other.
  const int threads = context.pool != nullptr ? context.pool->size() : 1;
  std::vector<Status> failed(static_cast<std::size_t>(threads));
  const auto pack_share = [&](int thread) {
    const PairRange share = pairs_of_thread(m.pairs, threads, thread);
    if (feed == nullptr) return pack_in_memory(m, stacked, share, context.isa);
    failed[static_cast<std::size_t>(thread)] = pack_from(*feed, m, stacked, context.isa);
  };
  if (context.pool != nullptr) {
    context.pool->run(pack_share);
  } else {
    pack_share(0);
  }
  for (const Status& status : failed) SHOAL_TRY(status);
  return PackedMatrix(std::move(impl));
}

std::int64_t WeightSource::bytes_per_row() const {
  const std::int64_t block = block_elements(type);
  return row_bytes(type, (first_column + columns + block - 1) / block * block);
}

DType WeightSource::target() const { return pack_as.value_or(packed_type(type)); }

PackedMatrix::PackedMatrix(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

std::int64_t PackedMatrix::rows() const { return impl_->rows; }
std::int64_t PackedMatrix::columns() const { return impl_->columns; }
DType PackedMatrix::type() const { return impl_->type; }
std::span<const std::byte> PackedMatrix::packed_bytes() const { return impl_->data; }

}  // namespace shoal::kernels
