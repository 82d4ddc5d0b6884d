// Sums whose values travel as bf16: half the bytes. Every rank rounds what it brings, its own included, so
// that it does not matter who adds; what is handed round is rounded once more. All ranks hold the same bits.

#include <algorithm>
#include <utility>

#include "comm/bf16_parts.h"
#include "comm/collectives.h"
#include "comm/sum_pieces.h"
#include "layout/traffic.h"

namespace shoal::comm {
namespace {

constexpr std::int64_t kWidth = sizeof(Bf16);

std::span<const std::byte> bytes_of(const Bf16* values, std::int64_t n) {
  return std::as_bytes(std::span(values, static_cast<std::size_t>(n)));
}
std::span<std::byte> writable_bytes_of(Bf16* values, std::int64_t n) {
  return std::as_writable_bytes(std::span(values, static_cast<std::size_t>(n)));
}

}  // namespace

Status Collectives::sum_rounded(const float* mine, std::span<float> out, WireBytes& wire) {
  const auto length = static_cast<std::int64_t>(out.size());
  if (length * kWidth > SumRoute::kDirectBytes && group_.size() > 2)
    return sum_rounded_in_chunks(mine, out, wire);
  const std::int64_t piece = kPairBytes / kWidth;
  for (std::int64_t begin = 0; begin < length; begin += piece) {
    const std::int64_t n = std::min(piece, length - begin);
    SHOAL_TRY(exchange_rounded(mine + begin, n, out.data() + begin, wire));
  }
  return {};
}

// Everybody gets everything.
Status Collectives::exchange_rounded(const float* mine, std::int64_t n, float* out, WireBytes& wire) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  if (rounded_.size() < ranks * static_cast<std::size_t>(n))
    rounded_.resize(ranks * static_cast<std::size_t>(n));
  outgoing_.clear();
  incoming_.clear();
  rounded_parts_.clear();
  for (std::int32_t peer = 0; peer < group_.size(); ++peer)
    rounded_parts_.push_back(rounded_.data() + peer * n);
  Bf16* own = rounded_.data() + group_.index * n;
  round_to_bf16(mine, n, own);
  for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.index) continue;
    outgoing_.push_back({rank_at(peer), bytes_of(own, n)});
    incoming_.push_back({rank_at(peer), writable_bytes_of(rounded_.data() + peer * n, n)});
  }
  SHOAL_TRY(transfer(outgoing_, incoming_, wire));
  add_bf16_parts(rounded_parts_, n, out);
  return {};
}

// As sum_in_chunks(): a piece of each rank's chunk at a time, and the sums of the piece before.
Status Collectives::sum_rounded_in_chunks(const float* mine, std::span<float> out, WireBytes& wire) {
  const auto length = static_cast<std::int64_t>(out.size());
  const std::int64_t ranks = group_.size();
  const std::int64_t longest = (((length + 15) / 16 + ranks - 1) / ranks) * 16;
  const std::int64_t piece = std::clamp<std::int64_t>(kPieceBytes / kWidth, 16, longest);
  const auto covered = [&](std::int32_t rank, std::int64_t step) {
    const std::int64_t begin = SumRoute::chunk_begin(length, rank, ranks);
    const std::int64_t end = SumRoute::chunk_begin(length, rank + 1, ranks);
    return std::pair(std::clamp(begin + step * piece, begin, end),
                     std::clamp(begin + (step + 1) * piece, begin, end));
  };
  // Of each rank: what I bring of its piece, what it brings of mine, its sums; my own sums in its place.
  rounded_.resize(std::max(rounded_.size(), static_cast<std::size_t>(3 * ranks * piece)));
  const auto staged = [&](std::int64_t rank) { return rounded_.data() + rank * piece; };
  const auto arrived = [&](std::int64_t rank) { return rounded_.data() + (ranks + rank) * piece; };
  const auto summed = [&](std::int64_t rank) { return rounded_.data() + (2 * ranks + rank) * piece; };
  rounded_parts_.clear();
  for (std::int32_t peer = 0; peer < group_.size(); ++peer)
    rounded_parts_.push_back(peer == group_.index ? staged(peer) : arrived(peer));
  const std::int64_t steps = (longest + piece - 1) / piece;
  for (std::int64_t step = 0; step <= steps; ++step) {
    const auto [own_begin, own_end] = covered(group_.index, step);
    const auto [before_begin, before_end] =
        step > 0 ? covered(group_.index, step - 1) : std::pair(own_begin, own_begin);
    outgoing_.clear();
    incoming_.clear();
    for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
      const auto [begin, end] = covered(peer, step);
      if (end > begin) round_to_bf16(mine + begin, end - begin, staged(peer));
      if (peer == group_.index) continue;
      if (end > begin) outgoing_.push_back({rank_at(peer), bytes_of(staged(peer), end - begin)});
      if (own_end > own_begin)
        incoming_.push_back({rank_at(peer), writable_bytes_of(arrived(peer), own_end - own_begin)});
      if (before_end > before_begin)
        outgoing_.push_back({rank_at(peer), bytes_of(summed(group_.index), before_end - before_begin)});
      if (step == 0) continue;
      if (const auto [from, to] = covered(peer, step - 1); to > from)
        incoming_.push_back({rank_at(peer), writable_bytes_of(summed(peer), to - from)});
    }
    SHOAL_TRY(transfer(outgoing_, incoming_, wire));
    for (std::int32_t peer = 0; step > 0 && peer < group_.size(); ++peer) {
      const auto [from, to] = covered(peer, step - 1);
      if (to > from) widen_bf16(summed(peer), to - from, out.data() + from);
    }
    if (own_end > own_begin) {
      float* sums = out.data() + own_begin;
      add_bf16_parts(rounded_parts_, own_end - own_begin, sums);
      round_to_bf16(sums, own_end - own_begin, summed(group_.index));
    }
  }
  return {};
}

}  // namespace shoal::comm
