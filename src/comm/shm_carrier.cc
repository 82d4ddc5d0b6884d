#include "comm/shm_carrier.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/shm_ring.h"

namespace shoal::comm {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
// Moved before the other side is told: small enough that it copies out while the next is copied in, and that
// both stay in L2.
constexpr std::size_t kStepBytes = 256 * 1024;

}  // namespace

ShmCarrier::ShmCarrier(std::shared_ptr<ShmSegment> segment, std::int32_t rank, Options options)
    : segment_(std::move(segment)), rank_(rank), options_(options), sums_(segment_->layout().groups.size()) {}

SharedSum* ShmCarrier::shared_sum(const Group& group) {
  const auto& groups = segment_->layout().groups;
  const auto found = std::find(groups.begin(), groups.end(), group.ranks);
  if (found == groups.end()) return nullptr;
  const auto index = static_cast<std::size_t>(found - groups.begin());
  if (sums_[index] == nullptr)
    sums_[index] =
        std::make_unique<ShmSum>(segment_, index, group.index, options_.patience, options_.pool, failed_);
  return sums_[index].get();
}

void ShmCarrier::ring_bell(std::int32_t rank) {
  auto& bell = *segment_->at<Doorbell>(segment_->layout().doorbell(rank));
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(bell.rings);
}

bool ShmCarrier::push_some(const Outgoing& out, Progress& progress) {
  ShmRing ring(*segment_, rank_, out.peer);
  std::size_t room = ring.room();
  bool moved = false;
  if (progress.at == 0) {
    if (room < kLengthBytes) return false;
    const std::uint64_t length = out.bytes.size();
    ring.push(reinterpret_cast<const std::byte*>(&length), kLengthBytes);
    progress.at = kLengthBytes;
    room -= kLengthBytes;
    moved = true;
  }
  const std::size_t sent = progress.at - kLengthBytes;
  const std::size_t n = std::min({room, out.bytes.size() - sent, kStepBytes});
  if (n > 0) {
    ring.push(out.bytes.data() + sent, n);
    progress.at += n;
    moved = true;
  }
  progress.done = progress.at == kLengthBytes + out.bytes.size();
  if (moved) ring_bell(out.peer);
  return moved;
}

Expected<bool> ShmCarrier::pull_some(const Incoming& in, Progress& progress) {
  ShmRing ring(*segment_, in.peer, rank_);
  std::size_t waiting = ring.waiting();
  bool moved = false;
  if (progress.at == 0) {
    if (waiting < kLengthBytes) return false;
    std::uint64_t length = 0;
    ring.pull(reinterpret_cast<std::byte*>(&length), kLengthBytes);
    if (length != in.bytes.size())
      return Status(ErrorCode::kCorrupt, fmt::format("rank {} sent {} bytes where rank {} expected {}",
                                                     in.peer, length, rank_, in.bytes.size()));
    progress.at = kLengthBytes;
    waiting -= kLengthBytes;
    moved = true;
  }
  const std::size_t got = progress.at - kLengthBytes;
  const std::size_t n = std::min({waiting, in.bytes.size() - got, kStepBytes});
  if (n > 0) {
    ring.pull(in.bytes.data() + got, n);
    progress.at += n;
    moved = true;
  }
  progress.done = progress.at == kLengthBytes + in.bytes.size();
  if (moved) ring_bell(in.peer);
  return moved;
}

Status ShmCarrier::transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
  if (failed_.ok() && segment_->aborted())
    failed_ = Status(ErrorCode::kUnavailable, segment_->abort_reason());
  if (failed_.ok()) failed_ = move_all(out, in, deadline);
  if (!failed_.ok()) segment_->abort(failed_.message());
  return failed_;
}

Status ShmCarrier::move_all(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
  sending_.assign(out.size(), {});
  receiving_.assign(in.size(), {});
  auto& bell = *segment_->at<Doorbell>(segment_->layout().doorbell(rank_));
  for (;;) {
    // Read before looking: what is rung for afterwards is not slept through.
    const std::uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
    bool moved = false, done = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (sending_[i].done) continue;
      done = false;
      if (waits_its_turn(out, sending_, i)) continue;
      moved |= push_some(out[i], sending_[i]);
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (receiving_[i].done) continue;
      done = false;
      if (waits_its_turn(in, receiving_, i)) continue;
      SHOAL_ASSIGN(some, pull_some(in[i], receiving_[i]));
      moved |= some;
    }
    if (done) return {};
    if (moved) continue;
    SHOAL_TRY(wait_for(*segment_, spinning_ ? options_.patience : Patience{0}, bell.rings, bell.sleepers,
                       deadline, [rings](std::uint32_t value) { return value != rings; }));
  }
}

}  // namespace shoal::comm
