#include "engine/joined_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/ledger.h"
#include "comm/pulsed_link.h"
#include "comm/shm_layout.h"
#include "comm/ucx_library.h"
#include "core/available_memory.h"
#include "core/log.h"
#include "engine/interrupt.h"
#include "engine/rank_carrier.h"
#include "engine/rank_parts.h"
#include "engine/rank_traffic.h"
#include "wire/bytes.h"
#include "wire/step_plan_codec.h"

namespace shoal::engine {
namespace {

using wire::MessageType;

constexpr std::chrono::seconds kJoinTime{60};
constexpr std::chrono::seconds kOpeningTime{5};
// For the carriers, once all have loaded.
constexpr std::chrono::seconds kMeetingTime{20};
constexpr std::chrono::milliseconds kRetryTime{200};  // between two tries to reach a head that is not up yet

Status lost(const std::string& reason) {
  return {ErrorCode::kUnavailable, fmt::format("the head is lost: {}", reason)};
}

// The head listens before it starts ranks, but one started by hand may be early.
Expected<std::unique_ptr<comm::ControlLink>> reach(const JoinOptions& options,
                                                   const wire::ClusterToken& token) {
  const TimePoint deadline = now() + kJoinTime;
  bool waiting = false;
  for (;;) {
    auto socket = comm::connect_to(options.head, deadline);
    Status status = socket.status();
    if (socket.ok()) {
      const Status opened =
          comm::open_as_caller(*socket, token, wire::LinkPurpose::kControl, now() + kOpeningTime);
      if (opened.ok()) return std::make_unique<comm::ControlLink>(*std::move(socket));
      status = Status(opened.code(), fmt::format("{}: {}", comm::to_string(options.head), opened.message()));
    }
    // A head that hangs up has as many callers as it lets in at a time, or is about to end.
    if (!options.await_head || now() + kRetryTime >= deadline || status.code() != ErrorCode::kUnavailable)
      return status;
    if (!waiting) log(LogLevel::kInfo, "rank.awaits_head", "reason=\"{}\"", status.message());
    waiting = true;
    std::this_thread::sleep_for(kRetryTime);
  }
}

// Frames of the head, in order, for the executor thread; and the end of the head. A reset ends what the
// executor thread waits for, and overtakes what belongs to the epoch before: not the assignment of a rank
// that joins meanwhile, nor a word that ends it.
class Inbox {
 public:
  void push(comm::ControlFrame frame) {
    {
      const std::lock_guard lock(mutex_);
      const bool reset = frame.type == MessageType::kReset;
      if (reset) std::erase_if(frames_, ends_with_epoch);
      frames_.push_back(std::move(frame));
      if (reset) interrupt_.trip("the worker starts anew");
    }
    arrived_.notify_one();
  }
  void end(const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      lost_ = status.message();
      // A pass that waits for others would wait for ever: nobody tells them to go on.
      interrupt_.trip("the head is lost");
    }
    arrived_.notify_one();
  }
  // The link's beats are the deadline: a head that lives may take its time.
  Expected<comm::ControlFrame> pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !frames_.empty() || lost_.has_value(); });
    if (frames_.empty()) return lost(*lost_);
    comm::ControlFrame frame = std::move(frames_.front());
    frames_.pop_front();
    if (frame.type == MessageType::kReset && !lost_) interrupt_.clear();
    return frame;
  }
  Interrupt& interrupt() { return interrupt_; }
  void set_loading(bool loading) { loading_.store(loading); }
  bool loading() const { return loading_.load(); }
  bool head_lost() {
    const std::lock_guard lock(mutex_);
    return lost_.has_value();
  }

 private:
  static bool ends_with_epoch(const comm::ControlFrame& frame) {
    return frame.type == MessageType::kStart || frame.type == MessageType::kPlan ||
           frame.type == MessageType::kReset;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<comm::ControlFrame> frames_;
  std::optional<std::string> lost_;
  Interrupt interrupt_;
  std::atomic<bool> loading_{false};
};

Expected<RankSettings> settings_of(const wire::Assign& assign, const JoinOptions& options) {
  const auto bad = [](const char* what) {
    return Status(ErrorCode::kCorrupt, fmt::format("the head assigns a {} that is none", what));
  };
  RankSettings settings;
  SHOAL_ASSIGN(layout, Layout::make(assign.degrees));
  if (assign.rank < 1 || assign.rank >= layout.ranks()) return bad("rank");
  if (!assign.stage_layers.empty() &&
      static_cast<std::int32_t>(assign.stage_layers.size()) != assign.degrees.pp)
    return bad("layout");
  if (assign.threads < 0 || assign.threads > 4096 || assign.max_slots < 1 || assign.max_slots > 65536)
    return bad("size");
  if (assign.kv_dtype != "bf16" && assign.kv_dtype != "f32") return bad("KV type");
  if (assign.activations != "auto" && assign.activations != "f32") return bad("type of activations");
  if (assign.sums != "f32" && assign.sums != "bf16") return bad("type of sums");
  const auto balance = balance_from_name(assign.balance);
  if (!balance) return bad("balance");
  settings.layout = layout;
  settings.rank = assign.rank;
  settings.model = options.model.empty() ? assign.model : options.model;
  settings.stage_layers = assign.stage_layers;
  settings.tp_split = assign.tp_split;
  settings.balance = *balance;
  settings.sums = assign.sums == "bf16" ? DType::kBF16 : DType::kF32;
  settings.threads = options.threads > 0 ? options.threads : assign.threads;
  settings.spin = assign.spin && settings.threads <= usable_cores();
  settings.kv_dtype = assign.kv_dtype == "f32" ? KvDType::kF32 : KvDType::kBf16;
  settings.activations =
      assign.activations == "f32" ? kernels::Activations::kF32 : kernels::Activations::kAuto;
  settings.packed_cache = options.packed_cache.empty() ? assign.packed_cache : options.packed_cache;
  settings.strict = assign.strict;
  if (!assign.weights.empty()) {
    settings.weights = dtype_from_name(assign.weights);
    if (!settings.weights) return bad("type of weights");
  }
  return settings;
}

// As the head names it; without a host it is the head's.
Expected<comm::Endpoint> endpoint_of(const std::string& text, const comm::Endpoint& head) {
  const bool at_head = text.starts_with(':');
  auto endpoint = comm::parse_endpoint(at_head ? head.host + text : text);
  if (endpoint.ok() && at_head) endpoint->host = head.host;
  if (!endpoint.ok()) return Status(ErrorCode::kCorrupt, "the head names an address of a rank that is none");
  return endpoint;
}

bool is_any_address(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

class JoinedRank {
 public:
  JoinedRank(const JoinOptions& options, const wire::ClusterToken& token, Inbox& inbox,
             comm::PulsedLink& link, std::shared_ptr<comm::Ledger> ledger)
      : options_(options), token_(token), inbox_(inbox), link_(link) {
    parts_.ledger = std::move(ledger);
  }
  ~JoinedRank() {
    inbox_.interrupt().release();
    end_service();
  }

  Status run() {
    SHOAL_TRY(join());
    SHOAL_TRY(load());
    for (;;) {
      const Status status = run_epoch();
      inbox_.interrupt().release();
      end_service();
      parts_.disconnect();
      listener_.reset();
      if (!reset_) {
        if (!heals_) return status;
        SHOAL_TRY(await_reset(status));
      }
      heals_ = false;
      assign_.epoch = *std::exchange(reset_, std::nullopt);
      log(LogLevel::kInfo, "rank.epoch", "rank={} epoch={}", assign_.rank, assign_.epoch.value);
    }
  }
  Epoch epoch() const { return assign_.epoch; }

 private:
  // The next frame's body, where it is of this type.
  Expected<std::vector<std::byte>> expect(MessageType type) {
    SHOAL_ASSIGN(frame, inbox_.pop());
    if (frame.type == MessageType::kRefuse) {
      SHOAL_ASSIGN(sentence, wire::decode_sentence(frame.body));
      return Status(ErrorCode::kInvalidArgument, sentence);
    }
    if (frame.type == MessageType::kStop) return Status(ErrorCode::kCancelled, "stopped");
    if (frame.type == MessageType::kReset && assign_.rank > 0) {
      SHOAL_ASSIGN(epoch, wire::decode_epoch(frame.body));
      reset_ = epoch;
      return Status(ErrorCode::kUnavailable, "the worker starts anew");
    }
    if (frame.type != type)
      return Status(ErrorCode::kCorrupt, fmt::format("the head sent message {} where {} was due",
                                                     static_cast<int>(frame.type), static_cast<int>(type)));
    return std::move(frame.body);
  }

  void pass(comm::FaultPoint at) const {
    // Before it has joined a rank is the number that it asks for.
    if (options_.faults) options_.faults->pass(at, assign_.rank > 0 ? assign_.rank : options_.rank);
  }

  Status join() {
    const wire::Join join{options_.build, options_.host, options_.rank, usable_cores(),
                          static_cast<std::int32_t>(::getpid())};
    pass(comm::FaultPoint::kJoin);
    SHOAL_TRY(link_.send(MessageType::kJoin, wire::encode(join)));
    SHOAL_ASSIGN(body, expect(MessageType::kAssign));
    SHOAL_ASSIGN(assign, wire::decode_assign(body));
    assign_ = std::move(assign);
    SHOAL_TRY(choose_fabric());
    SHOAL_ASSIGN(settings, settings_of(assign_, options_));
    settings_ = std::move(settings);
    log(LogLevel::kInfo, "rank.joined", "rank={} epoch={} model={}", assign_.rank, assign_.epoch.value,
        settings_.model.string());
    return {};
  }

  // Before anything is loaded.
  Status choose_fabric() {
    if (assign_.fabric.empty() && !options_.fabric.empty())
      return {ErrorCode::kInvalidArgument,
              fmt::format("--fabric {}: the head has none: give it there, too", options_.fabric)};
    fabric_ = options_.fabric.empty() ? assign_.fabric : options_.fabric;
    return fabric_.empty() ? Status() : comm::check_fabric(fabric_);
  }

  Status load() {
    int thousandths = -1;
    settings_.progress = [&](double fraction) {
      const int now_at = static_cast<int>(fraction * 1000);
      if (now_at == thousandths) return;
      thousandths = now_at;
      (void)link_.send(MessageType::kProgress, wire::encode_progress(static_cast<std::uint32_t>(now_at)));
    };
    inbox_.set_loading(true);
    const Status status = parts_.load_weights(settings_);
    inbox_.set_loading(false);
    return status;
  }

  Status run_epoch() {
    SHOAL_TRY(announce());
    SHOAL_TRY(start());
    return serve();
  }

  // Where the others may call.
  Expected<std::string> listen() {
    if (!assign_.network) return std::string();
    const bool advertised = !options_.advertise.host.empty();
    std::string host = assign_.listen.empty() ? link_.local_host() : assign_.listen;
    if (advertised) host = options_.advertise.host.find(':') == std::string::npos ? "0.0.0.0" : "::";
    SHOAL_ASSIGN(listener, comm::Listener::open(host, options_.advertise.port));
    const std::uint16_t port = listener.port();
    listener_.emplace(std::move(listener));
    if (advertised) return comm::to_string({options_.advertise.host, port});
    return is_any_address(host) ? fmt::format(":{}", port) : comm::to_string({host, port});
  }

  Status announce() {
    wire::Loaded loaded;
    loaded.epoch = assign_.epoch;
    loaded.fingerprint = parts_.model->description().fingerprint;
    loaded.kv_ids = parts_.kv_ids(settings_.kv_dtype);
    loaded.isa = kernels::isa_name(parts_.context.isa);
    loaded.page_bytes = parts_.page_bytes(settings_.kv_dtype, settings_.layout.degrees().cp);
    loaded.available = available_memory();
    loaded.mapped_weights = parts_.model->mapped_weight_bytes();
    loaded.threads = parts_.pool->size();
    loaded.parts = parts_.kv_parts();
    SHOAL_ASSIGN(endpoint, listen());
    loaded.endpoint = std::move(endpoint);
    pass(comm::FaultPoint::kLoaded);
    return link_.send(MessageType::kLoaded, wire::encode(loaded));
  }

  Expected<RankMeeting> meeting_of(const wire::Start& start) const {
    const auto ranks = static_cast<std::size_t>(settings_.layout.ranks());
    if (start.hosts.size() != ranks || start.endpoints.size() != ranks)
      return Status(ErrorCode::kCorrupt, "the head names other ranks than the layout has");
    RankMeeting meeting;
    meeting.layout = settings_.layout;
    meeting.rank = settings_.rank;
    meeting.epoch = assign_.epoch;
    meeting.hosts = start.hosts;
    meeting.name = start.meeting;
    meeting.lanes = start.lanes;
    meeting.ring_bytes = start.ring_bytes;
    meeting.fabric = fabric_;
    const auto here = std::ranges::count(start.hosts, start.hosts[static_cast<std::size_t>(settings_.rank)]);
    meeting.spin = settings_.spin && here * parts_.pool->size() <= usable_cores();
    if (meeting.one_host()) return meeting;
    for (const std::string& text : start.endpoints) {
      SHOAL_ASSIGN(endpoint, endpoint_of(text, options_.head));
      meeting.endpoints.push_back(std::move(endpoint));
    }
    return meeting;
  }

  Status start() {
    SHOAL_ASSIGN(body, expect(MessageType::kStart));
    SHOAL_ASSIGN(start, wire::decode_start(body));
    if (start.pages < 1 || start.pages > (std::int64_t{1} << 30) || start.offload_places < 0 ||
        start.offload_places > (1 << 30) || start.lanes < 1 || start.lanes > parts_.pool->size() ||
        start.ring_bytes < comm::kShmPage || start.ring_bytes > (std::uint64_t{1} << 36) ||
        start.ring_bytes % comm::kShmPage != 0)
      return {ErrorCode::kCorrupt, "the head starts with sizes that are none"};
    SHOAL_ASSIGN(meeting, meeting_of(start));
    if (!parts_.store || start.pages != pages_ || start.offload_places != offload_places_)
      SHOAL_TRY(parts_.make_pools(settings_.kv_dtype, start.pages, start.offload_places,
                                  settings_.layout.degrees().cp));
    pages_ = start.pages;
    offload_places_ = start.offload_places;
    pass(comm::FaultPoint::kStart);
    auto connection = connect_ranks(meeting, token_, listener_ ? &*listener_ : nullptr, *parts_.pool,
                                    inbox_.interrupt(), now() + kMeetingTime);
    // Nobody else is expected to call.
    listener_.reset();
    heals_ = !connection.ok();
    if (!connection.ok()) return connection.error();
    log(LogLevel::kInfo, "rank.connected", "rank={} carrier=\"{}\"", settings_.rank,
        connection->carrier->name());
    if (!meeting.fabric.empty() && !meeting.one_host())
      log(LogLevel::kWarn, "ranks.fabric", "rank={} interface={} reason=\"{}\"", settings_.rank,
          meeting.fabric, kFabricWarning);
    to_head_ = {meeting.scopes().front()};
    parts_.connect(meeting, *std::move(connection), options_.faults);
    Rank::Options options;
    options.max_slots = assign_.max_slots;
    options.observer = options_.logits_observer;
    options.plans_in_flight = settings_.layout.plans_in_flight();
    options.first_plan = start.first_plan;
    options.service = options_.service.get();
    parts_.make_rank(std::move(options));
    pass(comm::FaultPoint::kReady);
    SHOAL_TRY(begin_service());
    return link_.send(MessageType::kReady, wire::encode_epoch(assign_.epoch));
  }

  // Before the head can say anything to it.
  Status begin_service() {
    if (options_.service == nullptr) return {};
    RankService::Begin begin = parts_.service_begin();
    begin.rank = assign_.rank;
    begin.role = assign_.role;
    begin.host = options_.host;
    begin.listen = {assign_.handover_host, assign_.handover_port};
    begin.at_head = to_head_.scope == comm::Scope::kHost;
    if (!begin.at_head || begin.listen.host.empty())
      begin.listen.host = options_.advertise.host.empty() ? link_.local_host() : options_.advertise.host;
    begin.say = [this](std::span<const std::byte> word) { return link_.send(MessageType::kWord, word); };
    began_ = true;
    return options_.service->begin(std::move(begin));
  }
  void end_service() {
    if (std::exchange(began_, false)) options_.service->end();
  }

  Status serve() {
    for (;;) {
      SHOAL_ASSIGN(body, expect(MessageType::kPlan));
      SHOAL_ASSIGN(plan, wire::decode_step_plan(body));
      if (plan.epoch != assign_.epoch)
        return {ErrorCode::kCorrupt, fmt::format("a step plan of epoch {} came in epoch {}", plan.epoch.value,
                                                 assign_.epoch.value)};
      pass(comm::FaultPoint::kPlan);
      const StepResult result = parts_.rank->run(plan);
      if (const Status status = parts_.peers->status(); !status.ok()) {
        heals_ = true;
        return status;
      }
      if (!parts_.rank->answers(plan)) continue;
      const std::vector<std::byte> answer = wire::encode(result);
      SHOAL_TRY(link_.send(MessageType::kResult, answer));
      parts_.ledger->charge(comm::Purpose::kPlan, to_head_.of(answer.size()));
    }
  }

  // This epoch is over for this rank; the head may begin another.
  Status await_reset(const Status& why) {
    if (!inbox_.head_lost()) {
      log(LogLevel::kWarn, "rank.failed", "rank={} epoch={} reason=\"{}\"", assign_.rank, assign_.epoch.value,
          why.message());
      (void)link_.send(MessageType::kFailed, wire::encode(wire::Failed{assign_.epoch, why.message()}));
    }
    while (!reset_) {
      auto body = expect(MessageType::kPlan);
      if (!body.ok() && !reset_) return body.error();
    }
    return {};
  }

  const JoinOptions& options_;
  const wire::ClusterToken& token_;
  Inbox& inbox_;
  comm::PulsedLink& link_;
  wire::Assign assign_;
  RankSettings settings_;
  RankParts parts_;
  std::string fabric_;
  std::int64_t pages_ = 0;
  std::int32_t offload_places_ = 0;
  ControlCharge to_head_;
  std::optional<comm::Listener> listener_;  // while others may call
  std::optional<Epoch> reset_;              // the epoch that the head has begun
  bool heals_ = false;                      // what failed is over with the epoch
  bool began_ = false;                      // the service has
};

// The ledger goes to the head with the beats, where it has changed.
class TrafficReporter {
 public:
  explicit TrafficReporter(std::shared_ptr<const comm::Ledger> ledger) : ledger_(std::move(ledger)) {}
  void report(comm::ControlLink& link) {
    std::vector<std::byte> body = wire::encode(message_of(totals_of(*ledger_)));
    if (body == sent_) return;
    if (link.send(MessageType::kTraffic, body).ok()) sent_ = std::move(body);
  }

 private:
  std::shared_ptr<const comm::Ledger> ledger_;
  std::vector<std::byte> sent_ = wire::encode(wire::Traffic{});
};

}  // namespace

Expected<RankEnd> run_joined_rank(const JoinOptions& options, const wire::ClusterToken& token) {
  flush_denormals_here();
  SHOAL_ASSIGN(control, reach(options, token));
  Inbox inbox;
  auto ledger = std::make_shared<comm::Ledger>();
  TrafficReporter reporter(ledger);
  comm::PulsedLink link(
      std::move(control),
      [&](comm::ControlFrame frame) {
        // At once: what a later plan does rests on it (RankService, invariant 1).
        if (frame.type == MessageType::kWord) {
          if (options.service != nullptr) options.service->take(frame.body);
        } else {
          inbox.push(std::move(frame));
        }
      },
      [&](const Status& status) {
        inbox.end(status);
        if (inbox.loading() && options.lost_while_loading) options.lost_while_loading();
      },
      [&](comm::ControlLink& beating) { reporter.report(beating); });
  JoinedRank rank(options, token, inbox, link, ledger);
  Status status;
  try {
    status = rank.run();
  } catch (const std::exception& error) {
    status = Status(ErrorCode::kInternal, fmt::format("a rank failed: {}", error.what()));
  }
  if (status.code() == ErrorCode::kCancelled) return RankEnd::kStopped;
  // A refusal, or this rank's own failure, says more than the closed link that follows it.
  if (inbox.head_lost() && status.code() == ErrorCode::kUnavailable) {
    log(LogLevel::kWarn, "rank.lost_head", "reason=\"{}\"", status.message());
    return RankEnd::kLostHead;
  }
  (void)link.send(MessageType::kFailed, wire::encode(wire::Failed{rank.epoch(), status.message()}));
  return status;
}

}  // namespace shoal::engine
