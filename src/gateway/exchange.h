// One client's request from its arrival to its one end: waits for a place, is given to a worker or to a pair
// of them, forwards the answer as it comes, and goes elsewhere where that fails.
//
// Thread-safety: of the gateway's loop.
// Ownership: kept by GatewayCore::exchanges until it ends; callbacks hold it weakly.
// Invariants:
//   1. It ends once, in end(), whatever happens; then ticket, reservation, call and timers are gone.
//   2. Nothing is sent to the client before a worker's answer has begun; what has been sent is never sent
//      again (StreamLedger).
//   3. After the first byte only a lost worker leads to another attempt, and only where the answer can be
//      gone on with exactly.
//   4. Of a pair both legs are its own: when it ends, or goes elsewhere, neither is left behind. The answer
//      is the decode worker's; of the prefill worker's events only what the client does not have yet goes
//      out.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/event_splitter.h"
#include "gateway/gateway_core.h"
#include "gateway/prefill_leg.h"
#include "gateway/request_facts.h"
#include "gateway/stream_ledger.h"
#include "gateway/trace_context.h"
#include "policy/route.h"
#include "wire/http_message.h"
#include "wire/response_writer.h"

namespace shoal::gateway {

class Exchange final : public WorkerUser, public std::enable_shared_from_this<Exchange> {
 public:
  // Answers in its own time. tenant: null where no keys are asked for.
  static void start(GatewayCore& core, wire::HttpRequest request, wire::ResponsePtr response,
                    std::shared_ptr<const Tenant> tenant);
  Exchange(GatewayCore& core, wire::HttpRequest request, wire::ResponsePtr response,
           std::shared_ptr<const Tenant> tenant);
  ~Exchange() override = default;

  void on_worker_lost(const std::string& why) override;
  // Every worker is being asked to end the request named `rid`, or all: what fails now is not tried again.
  // True where none had it, so that it has ended here.
  bool abort(const std::string& rid, bool all);

 private:
  // Who is to answer: one worker, or a pair of which `worker` is the one that decodes.
  struct Route {
    policy::RouteChoice worker;
    std::optional<policy::RouteChoice> prefill;
    policy::RouteReason reason = policy::RouteReason::kOnly;
    double seconds = 0;
  };
  // One try at the request.
  struct Attempt {
    WorkerPtr worker;
    Reservation reservation;
    Route route;
    std::shared_ptr<PrefillLeg> leg;   // the prefill worker's, of a pair
    std::vector<std::uint64_t> rooms;  // of a pair: one for each choice
    TimePoint first_token{};           // of `worker`
    std::shared_ptr<wire::HttpExchange> call;
    std::uint64_t number = 0;
    TimePoint sent{};
    int status = 0;
    std::string content_type;
    wire::HeaderList headers;  // to be forwarded
    bool streams = false;
    bool done = false;  // [DONE] has come
    bool first_seen = false;
    bool continues = false;  // an answer that another has begun, of which it has not yet given an event
    bool judged = false;     // the worker's breaker has been told how it went
    bool pair_judged = false;
    std::string body;  // of an answer given whole
    EventSplitter splitter;
    std::optional<Status> failure;  // an error event that is the worker's own affair
  };

  // exchange.cc: the request's way.
  Status read();
  void wait_for_place();
  void try_worker();
  void send_to(const Route& route);
  wire::HttpCall call_for(const Worker& worker) const;
  std::string body_for(const Worker& worker) const;
  void client_gone();
  void worker_failed(const Status& why);
  void worker_refused();
  void refused_by(const WorkerPtr& worker);
  void give_up_or_go_on(bool resumable, const char* cause, const Status& why);
  void try_again(bool at_once);
  void no_worker();
  void watch_stall();
  void leave_worker();
  void fail(const Status& why);
  void end(Ending ending, int status);
  bool goes_on() const { return ledger_ && ledger_->begun(); }
  bool may_try_again() const { return attempts_ < core_.options.attempts && !aborted_; }

  // exchange_route.cc: who is to answer.
  std::optional<Route> choose();
  // turn: the decision's own number, the same for all that it looks at.
  std::optional<Route> choose_alone(std::span<const std::uint32_t> candidates, std::uint64_t turn);
  std::optional<Route> choose_pair(const ModelWorkers& serving, std::uint64_t turn);
  std::vector<std::uint32_t> able_to_go_on(const ModelWorkers& serving) const;
  std::vector<std::uint32_t> to_avoid() const;
  std::string why_nobody() const;

  // exchange_pair.cc: what two workers answer together.
  void start_prefill();
  std::string room_fields(const Worker& prefill) const;
  bool on_prefill_event(const wire::InnerNote& note, std::string_view event);
  void on_prefill_end(PrefillLeg::End end, const Status& why);
  void pair_failed(const Status& why);
  void learn_pair();
  // A refusal of what this gateway itself has put into the request.
  static bool blames_room(std::string_view body);
  // An error that is the worker's own, whoever its partner is.
  static bool own_fault(int status, std::string_view body);
  void leave_pair();
  void end_rooms(const WorkerPtr& worker) const;

  // exchange_answer.cc: what comes back.
  void on_head(int status, const wire::HeaderList& headers);
  bool on_data(std::string_view bytes);
  void on_end(const Status& status);
  bool on_event(std::string_view event);
  bool on_shoal_event(std::string_view event);
  StreamLedger::Verdict forward(const wire::InnerNote& note, std::string_view event);
  void on_plain_event(std::string_view event);
  void on_usage(const wire::InnerNote& note);
  void first_token();
  void flush();
  void deliver_whole();
  void finish_stream();
  void learn(std::int64_t input, std::int64_t output);
  wire::HeaderList extra_headers() const;
  std::string route_text() const;

  GatewayCore& core_;
  wire::HttpRequest request_;
  wire::ResponsePtr response_;
  const std::shared_ptr<const Tenant> tenant_;
  const TimePoint arrived_ = now();

  RequestFacts facts_;
  bool generates_ = false;    // one of the two routes whose answers are gone on with
  bool route_asked_ = false;  // X-Shoal-Route
  std::string model_;         // as workers know it
  std::string seed_field_;    // drawn here where the client gave none
  std::string answer_id_;
  TraceContext trace_;
  policy::Profile profile_;
  TenantPlace place_;
  Ticket ticket_;
  std::uint64_t waiting_ = 0;  // its number in the queue
  TimePoint admitted_{};

  Attempt attempt_;
  std::int32_t attempts_ = 0;
  std::uint64_t attempt_number_ = 0;
  std::vector<WorkerPtr> tried_;
  std::vector<std::pair<WorkerPtr, WorkerPtr>> tried_pairs_;  // prefill and decode worker
  WorkerPtr kept_decode_;                                     // whose partner was lost: it may have another
  std::string prefill_name_;                                  // of the last pair
  std::string fingerprint_;                                   // of the worker that has begun the answer
  std::optional<wire::HttpReply> refusal_;
  TimePoint homeless_since_{};  // since when no worker can take it
  std::optional<StreamLedger> ledger_;
  std::string out_;  // to be sent with the next flush
  bool begun_ = false;
  bool first_token_seen_ = false;
  bool ended_ = false;
  bool aborted_ = false;
  std::int64_t events_ = 0;  // with data, of a plain engine
  std::int64_t input_tokens_ = 0;
  std::int64_t output_tokens_ = 0;
  double worker_seconds_ = 0;  // the worker's own time to the first token
  TimePoint last_data_{};
  TimePoint first_sent_{};
  wire::LoopTimer retry_timer_;
  wire::LoopTimer stall_timer_;
};

}  // namespace shoal::gateway
