// A control link that shows it is alive and sees that the peer is: docs/wire.md, W11.
//
// Thread-safety: send() may be called from any thread; on_frame and on_lost are called on the link's reader
//   thread, on_lost at most once and last. Neither may wait, nor destroy the link.
// Ownership: owns link and two threads, joined by the destructor.
// Invariants: a beat goes out every kBeat; without a byte for kSilence, or after a malformed one, the peer is
//   lost. Once the destructor has begun nothing is reported any more.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/control_link.h"

namespace shoal::comm {

inline constexpr std::chrono::milliseconds kBeat{500};
inline constexpr std::chrono::milliseconds kSilence{3000};

class PulsedLink {
 public:
  using OnFrame = std::function<void(ControlFrame)>;  // beats are kept from it
  using OnLost = std::function<void(const Status&)>;
  // Called with every beat, on the thread that sends them: what is to be told now and then.
  using OnBeat = std::function<void(ControlLink&)>;

  PulsedLink(std::unique_ptr<ControlLink> link, OnFrame on_frame, OnLost on_lost, OnBeat on_beat = {});
  ~PulsedLink();
  PulsedLink(const PulsedLink&) = delete;
  PulsedLink& operator=(const PulsedLink&) = delete;

  Status send(wire::MessageType type, std::span<const std::byte> body = {}) {
    return link_->send(type, body);
  }
  std::string local_host() const { return link_->local_host(); }

 private:
  void read();
  void beat();
  bool closing();
  void end();

  std::unique_ptr<ControlLink> link_;
  OnFrame on_frame_;
  OnLost on_lost_;
  OnBeat on_beat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread reader_;
  std::thread beats_;
};

}  // namespace shoal::comm
