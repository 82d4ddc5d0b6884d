// A choice of a request that is prefilled here: what the engine has said so far, until its connection takes
// it.
//
// Thread-safety: the engine thread calls a Departure's functions, the connection's thread take().
// Ownership: shared by both.

#pragma once

#include <optional>
#include <string>
#include <utility>

#include "engine/handover_leg.h"
#include "handover/rooms.h"

namespace shoal::handover {

class DepartingRoom final : public Room, public engine::Departure {
 public:
  // So long a leg whose turn it is waits for the decode worker's call.
  static constexpr std::chrono::seconds kUncalled{30};

  DepartingRoom(std::shared_ptr<Rooms> rooms, RoomId id, std::int32_t prompt_tokens,
                std::uint64_t prompt_digest)
      : Room(std::move(rooms), id), prompt_tokens_(prompt_tokens), prompt_digest_(prompt_digest) {}

  void attach(RequestId request, std::int32_t choice) override {
    attach_to(request, choice);
    tell_called();
  }
  void close(const Status& why) override { close_for(why); }
  std::uint64_t room() const override { return id(); }
  void await_call() override {
    const std::lock_guard lock(mutex_);
    if (!called_) rooms_->hasten(id(), kUncalled);
  }
  void commit(engine::FirstToken first) override {
    const std::lock_guard lock(mutex_);
    first_ = std::move(first);
    wake_link();
  }

  // By the connection: the first token, once.
  std::optional<engine::FirstToken> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(first_, std::nullopt);
  }
  std::optional<std::string> broken_rank() const { return broken(); }
  // By the connection: the decode worker has reserved its pages.
  void called() {
    {
      const std::lock_guard lock(mutex_);
      called_ = true;
    }
    tell_called();
  }
  // The decode worker holds everything.
  void landed() {
    if (succeed()) tell({});
  }

  std::int32_t prompt_tokens() const { return prompt_tokens_; }
  std::uint64_t prompt_digest() const { return prompt_digest_; }

 private:
  // Whichever of call and attach() comes last tells the engine; both may.
  void tell_called() {
    {
      const std::lock_guard lock(mutex_);
      if (!called_) return;
    }
    if (const auto whose = attached()) rooms_->engine().handover_called(whose->first, whose->second);
  }

  const std::int32_t prompt_tokens_;
  const std::uint64_t prompt_digest_;
  std::optional<engine::FirstToken> first_;
  bool called_ = false;
};

}  // namespace shoal::handover
