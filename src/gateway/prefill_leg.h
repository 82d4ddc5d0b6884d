// The prefill worker's part of a request that two workers answer: its load, its call, its events, its end.
//
// Thread-safety: of the gateway's loop.
// Ownership: held by its exchange, and by its call until that has ended: let go, it ends by itself.
// Invariants:
//   1. What it has reserved is given back once, however it ends; its prompt's part with the first token.
//   2. Its end is told once; after cancel() or let_go() nothing is told any more.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/expected.h"
#include "gateway/event_splitter.h"
#include "gateway/gateway_core.h"
#include "gateway/worker_registry.h"
#include "wire/inner_note.h"

namespace shoal::gateway {

class PrefillLeg final : public WorkerUser, public std::enable_shared_from_this<PrefillLeg> {
 public:
  // How it ended.
  enum class End : std::uint8_t {
    kDone,     // the KV has been taken
    kLost,     // the worker is gone, or nobody knows what it says
    kRefused,  // it answered with another status than 200
    kFailed,   // it ended its stream with an error: its own, or that of the handover
  };
  struct Callbacks {
    // An event of a stream with notes. False: it contradicts what is known, and the leg is cut.
    std::function<bool(const wire::InnerNote& note, std::string_view event)> on_event;
    // why: in a sentence, where it is not kDone.
    std::function<void(End end, const Status& why)> on_end;
  };
  // What was answered where it refused.
  struct Refusal {
    int status = 0;
    std::string content_type;
    std::string body;
  };

  // Reserves. uncached_tokens and pages: of the prompt.
  PrefillLeg(GatewayCore& core, WorkerPtr worker, double uncached_tokens, double pages);
  ~PrefillLeg() override;

  // noted: events come with notes, each of which is told.
  void send(wire::HttpCall call, bool noted, Callbacks callbacks);
  // Its answer is not wanted any more.
  void cancel();
  // The other leg has ended well: this one ends as soon as the worker has heard so, without telling.
  void let_go();

  const WorkerPtr& worker() const { return worker_; }
  bool ended() const { return ended_; }
  const Refusal& refusal() const { return refusal_; }
  // When its first token came; nothing before, and where it is not streamed with notes.
  TimePoint first_token() const { return first_token_; }
  // What it said at its end; kind kUsage where it did.
  const wire::InnerNote& usage() const { return usage_; }

  void on_worker_lost(const std::string& why) override;

 private:
  bool on_data(std::string_view bytes);
  bool on_event(std::string_view event);
  void on_end(const Status& status);
  void finish(End end, const Status& why);
  void leave();

  GatewayCore& core_;
  const WorkerPtr worker_;
  Reservation reservation_;
  std::shared_ptr<wire::HttpExchange> call_;
  Callbacks callbacks_;
  EventSplitter splitter_;
  bool noted_ = false;
  bool streams_ = false;
  bool done_ = false;  // [DONE] has come
  bool ended_ = false;
  std::string error_;  // of an error event
  Refusal refusal_;
  TimePoint first_token_{};
  wire::InnerNote usage_;
  wire::LoopTimer timer_;
};

}  // namespace shoal::gateway
