#include "comm/shm_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>

#include "comm/add_parts.h"

namespace shoal::comm {
namespace {

// Values of a piece are dealt in lines of 16, so that no two threads write one cache line.
constexpr std::int64_t kLine = 16;
// A piece below this is one lane's: handing it to the pool costs more than it takes.
constexpr std::int64_t kLanesFromBytes = 64 * 1024;
// From here two shots read less than one: R x n bytes against 2 n. With two ranks they read the same and
// there is one wait more.
constexpr std::int64_t kTwoShotsFromBytes = 64 * 1024;
// From here two waits cost less than copying everything once: 12 us against 9 at 64 KiB between two ranks,
// 2,300 against 800 at 16 MiB.
constexpr std::int64_t kInPlaceFromBytes = 64 * 1024;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

std::int64_t deal(std::int64_t n, std::int64_t index, std::int64_t count) {
  return std::min((n + kLine - 1) / kLine * index / count * kLine, n);
}

}  // namespace

ShmSum::ShmSum(std::shared_ptr<ShmSegment> segment, std::size_t group, std::int32_t index, Patience patience,
               ThreadPool* pool, Status& failed)
    : segment_(std::move(segment)),
      group_(group),
      ranks_(segment_->layout().groups[group].size()),
      index_(index),
      patience_(patience),
      pool_(pool),
      failed_(failed),
      lanes_(static_cast<std::size_t>(pool == nullptr ? 1 : segment_->layout().lanes)) {
  assert(pool == nullptr || pool->size() >= segment_->layout().lanes);
}

float* ShmSum::buffer(std::int32_t index, const Piece& piece) const {
  return segment_->at<float>(
      segment_->layout().buffer(group_, static_cast<std::size_t>(index), piece.buffer));
}

void ShmSum::announce_round(std::size_t lane, std::uint32_t round) {
  RoundLine& own = line(index_, lane);
  announce(own.round, own.sleepers, round);
}

Status ShmSum::await_round(std::int32_t index, std::size_t lane, const Piece& piece, std::uint32_t round) {
  RoundLine& theirs = line(index, lane);
  // Rounds wrap after 2^32: compared by their distance.
  return wait_for(*segment_, patience_, theirs.round, theirs.sleepers, piece.deadline,
                  [round](std::uint32_t at) { return static_cast<std::int32_t>(at - round) >= 0; });
}

Status ShmSum::await_others(std::size_t lane, const Piece& piece, std::uint32_t round) {
  // From the next rank on: not all at the same memory at once.
  for (std::int32_t step = 1; step < ranks(); ++step)
    SHOAL_TRY(await_round((index_ + step) % ranks(), lane, piece, round));
  return {};
}

Status ShmSum::sum(std::span<const std::int32_t> parts, std::span<const float* const> mine, std::int64_t n,
                   float* out, TimePoint deadline) {
  // First, so that every rank finds out by itself and says the same.
  const std::int32_t most = *std::max_element(parts.begin(), parts.end());
  if (failed_.ok() && room(most) == 0)
    failed_ = Status(ErrorCode::kInvalidArgument,
                     fmt::format("a sum of {} parts of one rank does not fit into pieces of {} bytes", most,
                                 segment_->layout().piece_bytes));
  if (failed_.ok() && segment_->aborted())
    failed_ = Status(ErrorCode::kUnavailable, segment_->abort_reason());
  if (failed_.ok())
    failed_ = sums_in_place(parts, mine, n, out) ? sum_in_place(n, out, deadline)
                                                 : sum_pieces(parts, mine, n, out, deadline);
  // The rounds of the ranks no longer agree.
  if (!failed_.ok()) segment_->abort(failed_.message());
  return failed_;
}

std::int64_t ShmSum::room(std::int32_t most_parts) const {
  return static_cast<std::int64_t>(segment_->layout().piece_bytes / sizeof(float)) / most_parts / kLine *
         kLine;
}

void ShmSum::catch_up() {
  for (std::int32_t lane = 1; lane < segment_->layout().lanes; ++lane)
    announce_round(static_cast<std::size_t>(lane), round_);
  lanes_round_ = round_;
}

void ShmSum::keep_lanes_near(std::int32_t lanes) {
  if (lanes > 1) {
    lanes_round_ = round_;
  } else if (round_ - lanes_round_ >= kMostLag) {
    catch_up();
  }
}

template <typename F>
Status ShmSum::run(std::int64_t n, std::int32_t lanes, F&& work) {
  const auto lane_work = [&](std::int32_t lane) {
    return work(deal(n, lane, lanes), deal(n, lane + 1, lanes), at(lane));
  };
  if (lanes == 1) return lane_work(0);
  if (pool_ == nullptr) {
    // Fewer threads here than the others have: the lanes one after the other would wait for each other's
    // second round, so the caller must not mix.
    assert(false && "lanes without a pool");
    return {ErrorCode::kInternal, "sums over several lanes need as many threads"};
  }
  pool_->run([&](int thread) {
    if (thread < lanes) lanes_[static_cast<std::size_t>(thread)].status = lane_work(thread);
  });
  for (std::int32_t lane = 0; lane < lanes; ++lane) SHOAL_TRY(lanes_[static_cast<std::size_t>(lane)].status);
  return {};
}

Status ShmSum::sum_pieces(std::span<const std::int32_t> parts, std::span<const float* const> mine,
                          std::int64_t n, float* out, TimePoint deadline) {
  const std::int32_t most = *std::max_element(parts.begin(), parts.end());
  const std::int64_t room = this->room(most);
  for (std::int64_t begin = 0; begin < n; begin += room) {
    Piece piece;
    piece.parts = parts;
    piece.mine = mine;
    piece.begin = begin;
    piece.length = std::min(room, n - begin);
    piece.out = out;
    piece.buffer = buffer_;
    piece.round = round_;
    piece.deadline = deadline;
    // All of this must be the same on every rank: it depends on the sizes alone.
    const std::int64_t bytes = piece.length * static_cast<std::int64_t>(sizeof(float)) * most;
    const bool two_shots = ranks_ > 2 && bytes >= kTwoShotsFromBytes;
    const std::int32_t lanes = bytes >= kLanesFromBytes ? segment_->layout().lanes : 1;
    buffer_ ^= 1;
    round_ += two_shots ? 2 : 1;
    SHOAL_TRY(run(piece.length, lanes, [&](std::int64_t first, std::int64_t last, std::size_t lane) {
      return two_shots ? this->two_shots(piece, first, last, lane) : one_shot(piece, first, last, lane);
    }));
    keep_lanes_near(lanes);
  }
  return {};
}

bool ShmSum::sums_in_place(std::span<const std::int32_t> parts, std::span<const float* const> mine,
                           std::int64_t n, const float* out) const {
  const ShmLayout& layout = segment_->layout();
  const auto* arena = segment_->at<std::byte>(layout.arena(layout.groups[group_][at(index_)]));
  const auto* begin = reinterpret_cast<const std::byte*>(out);
  // Addresses as numbers: they may be of different objects.
  const bool inside = std::less_equal<>()(arena, begin) && std::less<>()(begin, arena + layout.arena_bytes);
  return inside && n * static_cast<std::int64_t>(sizeof(float)) >= kInPlaceFromBytes && mine[0] == out &&
         std::all_of(parts.begin(), parts.end(), [](std::int32_t count) { return count == 1; });
}

Status ShmSum::sum_in_place(std::int64_t n, float* values, TimePoint deadline) {
  const ShmLayout& layout = segment_->layout();
  const auto* arena = segment_->at<std::byte>(layout.arena(layout.groups[group_][at(index_)]));
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(values) - arena);
  assert(offset + static_cast<std::uint64_t>(n) * sizeof(float) <= layout.arena_bytes);
  const std::int32_t lanes = layout.lanes;
  Piece piece;
  piece.length = n;
  piece.round = round_;
  piece.deadline = deadline;
  round_ += 2;
  SHOAL_TRY(run(n, lanes, [&](std::int64_t first, std::int64_t last, std::size_t lane) {
    line(index_, lane).offset.store(offset, std::memory_order_relaxed);
    return in_place(piece, first, last, lane);
  }));
  keep_lanes_near(lanes);
  return {};
}

Expected<float*> ShmSum::values_of(std::int32_t index, std::size_t lane, std::int64_t n) const {
  const ShmLayout& layout = segment_->layout();
  const std::uint64_t offset = line(index, lane).offset.load(std::memory_order_relaxed);
  const std::uint64_t bytes = static_cast<std::uint64_t>(n) * sizeof(float);
  if (offset % sizeof(float) != 0 || bytes > layout.arena_bytes || offset > layout.arena_bytes - bytes)
    return Status(ErrorCode::kCorrupt, "a rank names memory outside its arena");
  return segment_->at<float>(layout.arena(layout.groups[group_][at(index)]) + offset);
}

// Nobody touches this rank's values between the two rounds but whoever adds them up.
Status ShmSum::in_place(const Piece& piece, std::int64_t first, std::int64_t last, std::size_t lane) {
  announce_round(lane, piece.round + 1);
  SHOAL_TRY(await_others(lane, piece, piece.round + 1));
  const std::int64_t own_first = first + deal(last - first, index_, ranks());
  const std::int64_t own_last = first + deal(last - first, index_ + 1, ranks());
  std::vector<const float*>& from = lanes_[lane].pointers;
  std::vector<float*>& to = lanes_[lane].places;
  from.clear();
  to.clear();
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    SHOAL_ASSIGN(values, values_of(rank, lane, piece.length));
    from.push_back(values + own_first);
    to.push_back(values + own_first);
  }
  add_parts(from, own_last - own_first, to);
  announce_round(lane, piece.round + 2);
  return await_others(lane, piece, piece.round + 2);
}

void ShmSum::copy_in(const Piece& piece, std::int64_t first, std::int64_t last) {
  if (last <= first) return;
  float* to = buffer(index_, piece);
  for (std::size_t p = 0; p < piece.mine.size(); ++p)
    std::memcpy(to + static_cast<std::int64_t>(p) * piece.length + first, piece.mine[p] + piece.begin + first,
                static_cast<std::size_t>(last - first) * sizeof(float));
}

// Of value `first` in every part, in the order of the sum.
void ShmSum::gather_pointers(const Piece& piece, std::int64_t first, std::size_t lane) {
  std::vector<const float*>& pointers = lanes_[lane].pointers;
  pointers.clear();
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    const float* theirs = buffer(rank, piece);
    for (std::int32_t p = 0; p < piece.parts[static_cast<std::size_t>(rank)]; ++p)
      pointers.push_back(rank == index_ ? piece.mine[static_cast<std::size_t>(p)] + piece.begin + first
                                        : theirs + p * piece.length + first);
  }
}

Status ShmSum::one_shot(const Piece& piece, std::int64_t first, std::int64_t last, std::size_t lane) {
  copy_in(piece, first, last);
  announce_round(lane, piece.round + 1);
  SHOAL_TRY(await_others(lane, piece, piece.round + 1));
  gather_pointers(piece, first, lane);
  add_parts(lanes_[lane].pointers, last - first, piece.out + piece.begin + first);
  return {};
}

Status ShmSum::two_shots(const Piece& piece, std::int64_t first, std::int64_t last, std::size_t lane) {
  const auto chunk = [&](std::int32_t rank) { return first + deal(last - first, rank, ranks()); };
  const std::int64_t own_first = chunk(index_);
  const std::int64_t own_last = chunk(index_ + 1);
  copy_in(piece, first, own_first);
  copy_in(piece, own_last, last);
  announce_round(lane, piece.round + 1);
  SHOAL_TRY(await_others(lane, piece, piece.round + 1));
  gather_pointers(piece, own_first, lane);
  // Nobody reads or writes this chunk of this rank's buffer in the first round.
  float* result = buffer(index_, piece) + own_first;
  add_parts(lanes_[lane].pointers, own_last - own_first, result);
  announce_round(lane, piece.round + 2);
  float* out = piece.out + piece.begin;
  for (std::int32_t step = 0; step < ranks(); ++step) {
    const std::int32_t rank = (index_ + step) % ranks();
    if (rank != index_) SHOAL_TRY(await_round(rank, lane, piece, piece.round + 2));
    if (chunk(rank + 1) > chunk(rank))
      std::memcpy(out + chunk(rank), buffer(rank, piece) + chunk(rank),
                  static_cast<std::size_t>(chunk(rank + 1) - chunk(rank)) * sizeof(float));
  }
  return {};
}

}  // namespace shoal::comm
