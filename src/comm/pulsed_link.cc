#include "comm/pulsed_link.h"

#include <utility>

namespace shoal::comm {

PulsedLink::PulsedLink(std::unique_ptr<ControlLink> link, OnFrame on_frame, OnLost on_lost, OnBeat on_beat)
    : link_(std::move(link)),
      on_frame_(std::move(on_frame)),
      on_lost_(std::move(on_lost)),
      on_beat_(std::move(on_beat)) {
  beats_ = std::thread([this] { beat(); });
  // Last: it may report, and wait for a lock of whoever makes this link, who could not wait for its end.
  try {
    reader_ = std::thread([this] { read(); });
  } catch (...) {
    end();
    throw;
  }
}

PulsedLink::~PulsedLink() { end(); }

void PulsedLink::end() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  link_->shut_down();
  if (reader_.joinable()) reader_.join();
  if (beats_.joinable()) beats_.join();
}

bool PulsedLink::closing() {
  const std::lock_guard lock(mutex_);
  return closing_;
}

void PulsedLink::read() {
  for (;;) {
    auto frame = link_->receive_unless_silent(kSilence);
    if (closing()) return;
    const bool beat = frame.ok() && frame->type == wire::MessageType::kBeat;
    if (beat && !frame->body.empty()) frame = Status(ErrorCode::kCorrupt, "a beat has a body");
    if (!frame.ok()) {
      // The peer is told by the closed connection, should it live.
      link_->shut_down();
      on_lost_(frame.error());
      return;
    }
    if (!beat) on_frame_(*std::move(frame));
  }
}

void PulsedLink::beat() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, kBeat);
    if (closing_) return;
    lock.unlock();
    // A link that takes no beat is shut down by send(); the reader reports it.
    const bool sent = link_->send(wire::MessageType::kBeat).ok();
    if (sent && on_beat_) on_beat_(*link_);
    lock.lock();
    if (!sent) return;
  }
}

}  // namespace shoal::comm
