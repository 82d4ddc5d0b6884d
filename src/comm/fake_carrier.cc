#include "comm/fake_carrier.h"

#include <fmt/format.h>

#include <cstring>

namespace shoal::comm {

FakeNetwork::FakeNetwork(std::int32_t ranks, std::size_t capacity)
    : ranks_(ranks), capacity_(capacity), queues_(static_cast<std::size_t>(ranks * ranks)) {}

std::vector<std::unique_ptr<Carrier>> FakeNetwork::carriers(std::int32_t ranks, std::size_t capacity) {
  const auto network = std::make_shared<FakeNetwork>(ranks, capacity);
  std::vector<std::unique_ptr<Carrier>> all;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    all.push_back(std::make_unique<FakeCarrier>(network, rank));
  return all;
}

Status FakeCarrier::transfer(std::span<const Outgoing> out, std::span<const Incoming> in,
                             TimePoint deadline) {
  if (failed_.ok()) failed_ = move_all(out, in, deadline);
  return failed_;
}

Status FakeCarrier::move_all(std::span<const Outgoing> out, std::span<const Incoming> in,
                             TimePoint deadline) {
  FakeNetwork& net = *network_;
  struct Progress {
    bool done = false;
  };
  std::vector<Progress> sent(out.size()), received(in.size());
  std::size_t left = out.size() + in.size();
  std::unique_lock lock(net.mutex_);
  while (left > 0) {
    if (!net.aborted_.empty()) return {ErrorCode::kUnavailable, net.aborted_};
    const std::size_t before = left;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (sent[i].done || waits_its_turn(out, sent, i)) continue;
      auto& queue = net.queue(rank_, out[i].peer);
      if (!queue.messages.empty() && queue.bytes + out[i].bytes.size() > net.capacity_) continue;
      queue.messages.emplace_back(out[i].bytes.begin(), out[i].bytes.end());
      queue.bytes += out[i].bytes.size();
      sent[i].done = true;
      --left;
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (received[i].done || waits_its_turn(in, received, i)) continue;
      auto& queue = net.queue(in[i].peer, rank_);
      if (queue.messages.empty()) continue;
      const FakeNetwork::Message message = std::move(queue.messages.front());
      queue.messages.pop_front();
      queue.bytes -= message.size();
      if (message.size() != in[i].bytes.size()) {
        net.aborted_ = fmt::format("rank {} sent {} bytes where rank {} expected {}", in[i].peer,
                                   message.size(), rank_, in[i].bytes.size());
        net.changed_.notify_all();
        return {ErrorCode::kCorrupt, net.aborted_};
      }
      if (!message.empty()) std::memcpy(in[i].bytes.data(), message.data(), message.size());
      received[i].done = true;
      --left;
    }
    if (left != before) {
      net.changed_.notify_all();
      continue;
    }
    if (net.changed_.wait_until(lock, deadline) == std::cv_status::timeout && now() >= deadline) {
      net.aborted_ = fmt::format("rank {} waited for other ranks until its deadline", rank_);
      net.changed_.notify_all();
      return {ErrorCode::kDeadline, net.aborted_};
    }
  }
  return {};
}

void FakeCarrier::abort(const std::string& reason) {
  const std::lock_guard lock(network_->mutex_);
  if (network_->aborted_.empty()) network_->aborted_ = reason.empty() ? "aborted" : reason;
  network_->changed_.notify_all();
}

}  // namespace shoal::comm
