#include "engine/joined_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/pulsed_link.h"
#include "comm/shm_meeting.h"
#include "core/available_memory.h"
#include "core/log.h"
#include "engine/pool_size.h"
#include "engine/rank_carrier.h"
#include "engine/rank_parts.h"
#include "wire/bytes.h"
#include "wire/step_plan_codec.h"

namespace shoal::engine {
namespace {

using wire::MessageType;

constexpr std::chrono::seconds kJoinTime{60};
constexpr std::chrono::seconds kOpeningTime{5};
constexpr std::chrono::milliseconds kRetryTime{200};  // between two tries to reach a head that is not up yet

Status lost(const std::string& reason) {
  return {ErrorCode::kUnavailable, fmt::format("the head is lost: {}", reason)};
}

// The head listens before it starts ranks, but one started by hand may be early.
Expected<std::unique_ptr<comm::ControlLink>> reach(const JoinOptions& options,
                                                   const wire::ClusterToken& token) {
  const TimePoint deadline = now() + kJoinTime;
  for (;;) {
    auto socket = comm::connect_to(options.head, deadline);
    if (socket.ok()) {
      SHOAL_TRY(comm::open_as_caller(*socket, token, wire::LinkPurpose::kControl, now() + kOpeningTime));
      return std::make_unique<comm::ControlLink>(*std::move(socket));
    }
    if (!options.await_head || now() + kRetryTime >= deadline ||
        socket.error().code() == ErrorCode::kInvalidArgument)
      return socket.error();
    std::this_thread::sleep_for(kRetryTime);
  }
}

// Frames of the head, in order, for the executor thread; and the end of the head.
class Inbox {
 public:
  void push(comm::ControlFrame frame) {
    {
      const std::lock_guard lock(mutex_);
      frames_.push_back(std::move(frame));
    }
    arrived_.notify_one();
  }
  void end(const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      lost_ = status.message();
      // A pass that waits for others would wait for ever: nobody tells them to go on.
      if (segment_ != nullptr) segment_->abort("the head is lost");
    }
    arrived_.notify_one();
  }
  // What to abort at the head's end.
  void attach(std::shared_ptr<comm::ShmSegment> segment) {
    const std::lock_guard lock(mutex_);
    segment_ = std::move(segment);
    if (lost_) segment_->abort("the head is lost");
  }
  // The link's beats are the deadline: a head that lives may take its time.
  Expected<comm::ControlFrame> pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !frames_.empty() || lost_.has_value(); });
    if (frames_.empty()) return lost(*lost_);
    comm::ControlFrame frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }
  void set_loading(bool loading) { loading_.store(loading); }
  bool loading() const { return loading_.load(); }
  bool head_lost() {
    const std::lock_guard lock(mutex_);
    return lost_.has_value();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<comm::ControlFrame> frames_;
  std::optional<std::string> lost_;
  std::shared_ptr<comm::ShmSegment> segment_;
  std::atomic<bool> loading_{false};
};

Expected<RankSettings> settings_of(const wire::Assign& assign, const std::string& model) {
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
  const auto balance = balance_from_name(assign.balance);
  if (!balance) return bad("balance");
  settings.layout = layout;
  settings.rank = assign.rank;
  settings.model = model.empty() ? assign.model : model;
  settings.stage_layers = assign.stage_layers;
  settings.tp_split = assign.tp_split;
  settings.balance = *balance;
  settings.threads = assign.threads;
  settings.spin = assign.spin;
  settings.kv_dtype = assign.kv_dtype == "f32" ? KvDType::kF32 : KvDType::kBf16;
  settings.activations =
      assign.activations == "f32" ? kernels::Activations::kF32 : kernels::Activations::kAuto;
  settings.strict = assign.strict;
  if (!assign.weights.empty()) {
    settings.weights = dtype_from_name(assign.weights);
    if (!settings.weights) return bad("type of weights");
  }
  return settings;
}

class JoinedRank {
 public:
  JoinedRank(const JoinOptions& options, Inbox& inbox, comm::PulsedLink& link)
      : options_(options), inbox_(inbox), link_(link) {}

  Status run() {
    SHOAL_TRY(join());
    SHOAL_TRY(load());
    SHOAL_TRY(start());
    return serve();
  }

 private:
  // The next frame's body, where it is of this type.
  Expected<std::vector<std::byte>> expect(MessageType type) {
    SHOAL_ASSIGN(frame, inbox_.pop());
    if (frame.type == MessageType::kRefuse) {
      SHOAL_ASSIGN(sentence, wire::decode_sentence(frame.body));
      return Status(ErrorCode::kInvalidArgument, sentence);
    }
    if (frame.type == MessageType::kStop) return Status(ErrorCode::kCancelled, "stopped");
    if (frame.type != type)
      return Status(ErrorCode::kCorrupt, fmt::format("the head sent message {} where {} was due",
                                                     static_cast<int>(frame.type), static_cast<int>(type)));
    return std::move(frame.body);
  }

  Status join() {
    const wire::Join join{options_.build, options_.host, options_.rank, usable_cores(),
                          static_cast<std::int32_t>(::getpid())};
    SHOAL_TRY(link_.send(MessageType::kJoin, wire::encode(join)));
    SHOAL_ASSIGN(body, expect(MessageType::kAssign));
    SHOAL_ASSIGN(assign, wire::decode_assign(body));
    assign_ = std::move(assign);
    SHOAL_ASSIGN(settings, settings_of(assign_, options_.model));
    settings_ = std::move(settings);
    return {};
  }

  Status load() {
    int thousandths = -1;
    settings_.progress = [&](double fraction) {
      const int now_at = static_cast<int>(fraction * 1000);
      if (now_at == thousandths) return;
      thousandths = now_at;
      wire::ByteWriter body;
      body.put(static_cast<std::uint32_t>(now_at));
      (void)link_.send(MessageType::kProgress, body.take());
    };
    inbox_.set_loading(true);
    const Status status = parts_.load_weights(settings_);
    inbox_.set_loading(false);
    SHOAL_TRY(status);
    wire::Loaded loaded;
    loaded.fingerprint = parts_.model->description().fingerprint;
    loaded.kv_ids = parts_.kv_ids(settings_.kv_dtype);
    loaded.isa = kernels::isa_name(parts_.context.isa);
    loaded.page_bytes = parts_.page_bytes(settings_.kv_dtype);
    loaded.available = available_memory();
    loaded.threads = parts_.pool->size();
    return link_.send(MessageType::kLoaded, wire::encode(loaded));
  }

  Status start() {
    SHOAL_ASSIGN(body, expect(MessageType::kStart));
    SHOAL_ASSIGN(start, wire::decode_start(body));
    if (start.pages < 1 || start.pages > (std::int64_t{1} << 30) || start.lanes < 1 ||
        start.lanes > parts_.pool->size() || start.ring_bytes < comm::kShmPage ||
        start.ring_bytes > (std::uint64_t{1} << 36) || start.ring_bytes % comm::kShmPage != 0)
      return {ErrorCode::kCorrupt, "the head starts with sizes that are none"};
    SHOAL_TRY(parts_.make_pools(settings_.kv_dtype, start.pages));
    SHOAL_ASSIGN(segment, comm::attach_segment(
                              start.meeting, shm_layout_for(settings_.layout, start.lanes, start.ring_bytes),
                              now() + kOpeningTime));
    inbox_.attach(segment);
    parts_.connect(settings_.layout, settings_.rank,
                   shm_carrier_for(segment, settings_.rank, settings_.spin, *parts_.pool));
    Rank::Options options;
    options.max_slots = assign_.max_slots;
    options.observer = options_.logits_observer;
    options.plans_in_flight = settings_.layout.plans_in_flight();
    parts_.make_rank(std::move(options));
    return link_.send(MessageType::kReady);
  }

  Status serve() {
    for (;;) {
      SHOAL_ASSIGN(body, expect(MessageType::kPlan));
      SHOAL_ASSIGN(plan, wire::decode_step_plan(body));
      if (plan.epoch != assign_.epoch)
        return {ErrorCode::kCorrupt, fmt::format("a step plan of epoch {} came in epoch {}", plan.epoch.value,
                                                 assign_.epoch.value)};
      const StepResult result = parts_.rank->run(plan);
      SHOAL_TRY(parts_.peers->status());
      if (parts_.peers->samples()) SHOAL_TRY(link_.send(MessageType::kResult, wire::encode(result)));
    }
  }

  const JoinOptions& options_;
  Inbox& inbox_;
  comm::PulsedLink& link_;
  wire::Assign assign_;
  RankSettings settings_;
  RankParts parts_;
};

}  // namespace

Expected<RankEnd> run_joined_rank(const JoinOptions& options, const wire::ClusterToken& token) {
  flush_denormals_here();
  SHOAL_ASSIGN(control, reach(options, token));
  Inbox inbox;
  comm::PulsedLink link(
      std::move(control), [&](comm::ControlFrame frame) { inbox.push(std::move(frame)); },
      [&](const Status& status) {
        inbox.end(status);
        if (inbox.loading() && options.lost_while_loading) options.lost_while_loading();
      });
  Status status;
  try {
    status = JoinedRank(options, inbox, link).run();
  } catch (const std::exception& error) {
    status = Status(ErrorCode::kInternal, fmt::format("a rank failed: {}", error.what()));
  }
  if (status.code() == ErrorCode::kCancelled) return RankEnd::kStopped;
  // A refusal, or this rank's own failure, says more than the closed link that follows it.
  if (inbox.head_lost() && status.code() == ErrorCode::kUnavailable) {
    log(LogLevel::kWarn, "rank.lost_head", "reason=\"{}\"", status.message());
    return RankEnd::kLostHead;
  }
  (void)link.send(MessageType::kFailed, wire::encode_sentence(status.message()));
  return status;
}

}  // namespace shoal::engine
