#include "parallel/peers.h"

#include <fmt/format.h>

#include <utility>

#include "core/clock.h"
#include "layout/coordinate_set.h"

namespace shoal::parallel {
namespace {

Group everyone(const Layout& layout, std::int32_t rank) {
  Group group;
  for (std::int32_t r = 0; r < layout.ranks(); ++r) group.ranks.push_back(r);
  group.index = rank;
  return group;
}

}  // namespace

Peers::Peers(const Layout& layout, std::int32_t rank, comm::Carrier& carrier, comm::Ledger& ledger,
             comm::Collectives::Options options)
    : carrier_(carrier),
      ledger_(ledger),
      options_(std::move(options)),
      layout_(layout),
      rank_(rank),
      at_(layout.coordinate(rank)),
      tensor_(carrier, layout.group(GroupKind::kAttentionTensor, rank), ledger, options_),
      context_(carrier, layout.group(GroupKind::kContext, rank), ledger, options_),
      all_(carrier, everyone(layout, rank), ledger, options_) {}

void Peers::fail(Status status) {
  carrier_.abort(status.message());
  if (status_.ok()) status_ = std::move(status);
}

std::int32_t Peers::sampling_rank() const {
  return layout_.rank({0, layout_.degrees().pp - 1, at_.cp, at_.dp});
}

// From the first value to the last, what lies between rows included: one message, one sum.
std::span<float> Peers::region(MatrixView<float> y) const {
  return {y.data, static_cast<std::size_t>(y.rows == 0 ? 0 : (y.rows - 1) * y.stride + y.columns)};
}

void Peers::sum(MatrixView<float> y) {
  attempt([&] { return tensor_.all_reduce(comm::Purpose::kTp, region(y)); });
}

void Peers::sum_parts(std::span<const std::int32_t> counts, std::span<const float* const> mine,
                      MatrixView<float> y) {
  attempt([&] { return tensor_.all_reduce(comm::Purpose::kTp, {counts, mine}, region(y)); });
}

Expected<float*> Peers::part_scratch(std::int64_t values) {
  const auto bytes = static_cast<std::size_t>(values) * sizeof(float);
  if (parts_.size() < bytes) {
    auto larger = Buffer::allocate(bytes, "partial sums");
    if (!larger) {
      attempt([&] { return larger.error(); });
      return larger.error();
    }
    parts_ = std::move(*larger);
  }
  return parts_.as<float>();
}

void Peers::send_on(comm::Purpose purpose, std::int32_t peer, std::span<const std::byte> bytes) {
  const TimePoint begin = now();
  attempt([&] { return all_.send(purpose, peer, bytes); });
  waited_for_stages_ += seconds_between(begin, now());
}

void Peers::receive_from(comm::Purpose purpose, std::int32_t peer, std::span<std::byte> bytes) {
  const TimePoint begin = now();
  attempt([&] { return all_.receive(purpose, peer, bytes); });
  waited_for_stages_ += seconds_between(begin, now());
}

std::int32_t Peers::neighbour(std::int32_t stages_away) const {
  Coordinate there = at_;
  there.pp += stages_away;
  return layout_.rank(there);
}

float* Peers::shared_room(std::int64_t values) const {
  const std::span<std::byte> arena = carrier_.arena();
  const bool fits =
      !tensor_.group().alone() && arena.size() / sizeof(float) >= static_cast<std::size_t>(values);
  return fits ? reinterpret_cast<float*>(arena.data()) : nullptr;
}

void Peers::send_hidden(MatrixView<const float> x) {
  const auto values = region({const_cast<float*>(x.data), x.rows, x.columns, x.stride});
  send_on(comm::Purpose::kPp, neighbour(1), std::as_bytes(values));
}

void Peers::receive_hidden(MatrixView<float> x) {
  receive_from(comm::Purpose::kPp, neighbour(-1), std::as_writable_bytes(region(x)));
}

void Peers::send_stage_seconds(std::span<const double> seconds) {
  send_on(comm::Purpose::kPlan, neighbour(1), std::as_bytes(seconds));
}

void Peers::receive_stage_seconds(std::span<double> seconds) {
  receive_from(comm::Purpose::kPlan, neighbour(-1), std::as_writable_bytes(seconds));
}

void Peers::exchange(comm::Purpose purpose, std::span<const comm::Outgoing> out,
                     std::span<const comm::Incoming> in, std::uint64_t calls) {
  if (out.empty() && in.empty()) return;
  attempt([&] { return context_.exchange(purpose, out, in, calls); });
}

bool Peers::is_kept(std::span<const comm::Outgoing> out) const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int32_t peer = out[i].peer;
    if (i > 0 && out[i - 1].peer != peer) bytes = 0;
    bytes += out[i].bytes.size() + sizeof(std::uint64_t);
    if (bytes > carrier_.buffer_bytes(context_.group().ranks[static_cast<std::size_t>(peer)])) return false;
  }
  return true;
}

bool Peers::send_early(comm::Purpose purpose, std::span<const comm::Outgoing> out, std::uint64_t calls) {
  if (!is_kept(out)) return false;
  exchange(purpose, out, {}, calls);
  return true;
}

void Peers::begin_exchange(comm::Purpose purpose, std::span<const comm::Outgoing> out,
                           std::span<const comm::Incoming> in, std::uint64_t calls) {
  begun_.emplace_back();
  if (!status_.ok() || (out.empty() && in.empty())) return;
  if (background_ == nullptr)
    background_ = std::make_unique<comm::AsyncCollectives>(
        carrier_, layout_.group(GroupKind::kContext, rank_), ledger_, options_);
  begun_.back() = background_->exchange(purpose, out, in, calls);
}

void Peers::await_exchange() {
  if (begun_.empty()) return;
  // Also after a failure: what was given is in use until the call has ended.
  if (begun_.front()) {
    const Status status = begun_.front()->wait();
    attempt([&] { return status; });
  }
  begun_.pop_front();
}

void Peers::gather_to_first(std::span<const std::byte> mine, std::span<const std::span<std::byte>> theirs) {
  const Group& group = tensor_.group();
  if (group.index != 0) {
    attempt([&] { return tensor_.send(comm::Purpose::kSample, 0, mine); });
    return;
  }
  for (std::int32_t peer = 1; peer < group.size(); ++peer) {
    const auto place = theirs[static_cast<std::size_t>(peer)];
    attempt([&] { return tensor_.receive(comm::Purpose::kSample, peer, place); });
  }
}

void Peers::tell_group(std::span<std::byte> bytes) {
  attempt([&] { return tensor_.broadcast(comm::Purpose::kSample, 0, bytes); });
}

void Peers::send_ids(std::span<const TokenId> ids) {
  for (std::int32_t peer = 0; peer < layout_.ranks(); ++peer) {
    const Coordinate there = layout_.coordinate(peer);
    const bool wants = there.cp == at_.cp && there.dp == at_.dp && (there.pp == 0 || there.pp == at_.pp);
    if (wants && peer != rank_) send_on(comm::Purpose::kSample, peer, std::as_bytes(ids));
  }
}

void Peers::receive_ids(std::span<TokenId> ids) {
  receive_from(comm::Purpose::kSample, sampling_rank(), std::as_writable_bytes(ids));
}

Status check_degrees(const Degrees& d) {
  if (d.cp > CoordinateSet::kMost)
    return {ErrorCode::kUnsupported,
            fmt::format("cp {}: a worker has at most {} coordinates", d.cp, CoordinateSet::kMost)};
  for (const auto& [name, degree] : {std::pair{"dp", d.dp}, {"ep", d.ep}}) {
    if (degree > 1)
      return {
          ErrorCode::kUnsupported,
          fmt::format("{} {} is not served by this build: use {} 1 with tp, pp and cp", name, degree, name)};
  }
  return {};
}

}  // namespace shoal::parallel
