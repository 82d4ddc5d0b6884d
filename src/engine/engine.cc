#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>

#include "core/log.h"
#include "engine/executor.h"
#include "engine/scheduler.h"

namespace shoal::engine {
namespace {

struct SubmitCommand {
  RequestId id;
  GenerateRequest request;
  OutputSink sink;
};
struct CancelCommand {
  RequestId id;
};
struct FlushCommand {
  std::promise<void> done;
};
struct LostCommand {
  Status why;
};
struct RecoveredCommand {};
struct CalledCommand {
  RequestId id;
  std::int32_t choice = 0;
};
struct ArrivedCommand {
  RequestId id;
  std::int32_t choice = 0;
  FirstToken first;
};
struct HandoverEndedCommand {
  RequestId id;
  std::int32_t choice = 0;
  Status status;
};
using Command = std::variant<SubmitCommand, CancelCommand, FlushCommand, LostCommand, RecoveredCommand,
                             CalledCommand, ArrivedCommand, HandoverEndedCommand>;

// Requests that outlive a rank wait so long for its like, then end with an error.
constexpr std::chrono::seconds kRanksAwaited{60};

// Of the engine thread: whether there is anybody who runs plans.
enum class Serving : std::uint8_t {
  kYes,
  kLost,   // plans in flight are still to be answered
  kAwaits  // the executor begins another epoch
};

// Of one layer of the whole model; a tensor rank moves its part.
SchedulerOptions::ContextBytes context_bytes(const model::ModelDescription& model,
                                             const EngineOptions& options) {
  const model::AttentionBlock& block = model.layers.front().attention;
  const std::int64_t value = options.kv_dtype == KvDType::kBf16 ? 2 : 4;
  const std::int64_t width = std::int64_t{block.query_heads} * block.head_dim;
  SchedulerOptions::ContextBytes bytes;
  bytes.page = 2 * value * kPageTokens * block.kv_heads * block.head_dim;
  bytes.query = width * std::int64_t{sizeof(float)};
  bytes.result = (width + block.query_heads) * std::int64_t{sizeof(float)};
  bytes.strict = options.deterministic;
  return bytes;
}

struct PendingFlush {
  PlanNumber after;  // the last plan composed before it was asked for
  std::promise<void> done;
};

struct LiveRequest {
  std::string rid;
  std::int32_t choices = 0;
  bool cancelled = false;  // its cancel is queued: once is enough
};

}  // namespace

struct Engine::Impl {
  EngineOptions options;
  std::size_t plans_in_flight = 0;  // of all coordinates together
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<Executor> executor;    // its thread outlives the engine thread
  std::unique_ptr<Scheduler> scheduler;  // the engine thread's
  std::vector<PendingFlush> flushes;     // the engine thread's
  Serving serving = Serving::kYes;       // the engine thread's
  LostCommand lost_ranks;                // the engine thread's: while it is not kYes
  TimePoint lost_at{};

  // Between threads.
  mutable std::mutex mutex;
  std::condition_variable wake;   // the engine thread waits
  std::condition_variable quiet;  // drain() waits
  std::deque<Command> commands;
  std::vector<StepResult> results;  // room for all plans in flight: answering allocates nothing
  bool stop = false;
  bool draining = false;
  std::string lost;  // why nothing is served; empty: all is well
  std::uint64_t next_id = 1;
  std::unordered_map<std::uint64_t, LiveRequest> live;
  std::unordered_map<std::string, RequestId> by_rid;
  std::int32_t live_choices = 0;
  std::int32_t ending = 0;  // last events being sent
  EngineStats published;
  std::optional<TimePoint> waiting_since;

  std::thread thread;

  Executor::Callbacks callbacks();
  void main();
  void await_work(std::unique_lock<std::mutex>& lock, bool stopping);
  void execute(Command command, TimePoint now);
  void flush_what_is_due();
  void publish();
  void send_last(RequestId id, const OutputSink& sink, OutputEvent&& event);
  bool queue_cancel(RequestId id);
  bool all_ended() const { return live.empty() && ending == 0; }  // under the mutex
};

Executor::Callbacks Engine::Impl::callbacks() {
  const auto under_mutex = [this](auto&& change) {
    {
      std::lock_guard lock(mutex);
      change();
    }
    wake.notify_one();
  };
  return {
      .done = [=, this](StepResult result) { under_mutex([&] { results.push_back(std::move(result)); }); },
      .lost =
          [=, this](const Status& why) {
            under_mutex([&] {
              lost = why.message();
              commands.emplace_back(LostCommand{why});
            });
          },
      .recovered =
          [=, this] {
            under_mutex([&] {
              lost.clear();
              commands.emplace_back(RecoveredCommand{});
            });
          }};
}

// The engine thread: waits for commands and results, takes them in order, keeps plans in flight.
void Engine::Impl::main() {
  std::vector<StepResult> done;
  done.reserve(plans_in_flight);
  bool stopping = false;
  for (;;) {
    std::deque<Command> todo;
    done.clear();
    {
      std::unique_lock lock(mutex);
      await_work(lock, stopping);
      todo.swap(commands);
      done.swap(results);
      stopping = stop;
    }
    // Results first: a cancel that comes with a last token comes too late.
    for (StepResult& result : done) scheduler->apply(std::move(result), now());
    for (Command& command : todo) execute(std::move(command), now());
    if (stopping) scheduler->cancel_all(now());
    if (serving != Serving::kYes && now() >= lost_at + kRanksAwaited)
      scheduler->fail_all(lost_ranks.why, now());
    if (serving == Serving::kLost && scheduler->in_flight() == 0) {
      serving = Serving::kAwaits;
      executor->resume(scheduler->begin_epoch());
    }
    flush_what_is_due();
    while (serving == Serving::kYes) {
      auto plan = scheduler->compose(now());
      if (!plan) break;
      executor->push(*std::move(plan));
    }
    publish();
    if (stopping && scheduler->in_flight() == 0) return;
  }
}

// Once stopping, only the answers to what is in flight are left to wait for.
void Engine::Impl::await_work(std::unique_lock<std::mutex>& lock, bool stopping) {
  const auto is_there = [&] { return stop != stopping || !commands.empty() || !results.empty(); };
  if (serving == Serving::kYes || !scheduler->has_requests()) {
    wake.wait(lock, is_there);
  } else {
    wake.wait_until(lock, lost_at + kRanksAwaited, is_there);
  }
}

void Engine::Impl::execute(Command command, TimePoint now) {
  if (auto* submit = std::get_if<SubmitCommand>(&command)) {
    scheduler->submit(submit->id, std::move(submit->request), std::move(submit->sink), now);
  } else if (auto* cancel = std::get_if<CancelCommand>(&command)) {
    scheduler->cancel(cancel->id, now);
  } else if (auto* flush = std::get_if<FlushCommand>(&command)) {
    flushes.push_back({scheduler->last_plan(), std::move(flush->done)});
  } else if (auto* lost_epoch = std::get_if<LostCommand>(&command)) {
    serving = Serving::kLost;
    lost_at = now;
    // Whatever the reason: another server could answer.
    lost_ranks.why = Status(ErrorCode::kUnavailable, lost_epoch->why.message());
    scheduler->lose_ranks(lost_ranks.why, now);
  } else if (std::get_if<RecoveredCommand>(&command)) {
    serving = Serving::kYes;
  } else if (const auto* called = std::get_if<CalledCommand>(&command)) {
    scheduler->handover_called(called->id, called->choice, now);
  } else if (auto* arrived = std::get_if<ArrivedCommand>(&command)) {
    scheduler->arrived(arrived->id, arrived->choice, std::move(arrived->first), now);
  } else if (auto* ended = std::get_if<HandoverEndedCommand>(&command)) {
    scheduler->handover_ended(ended->id, ended->choice, ended->status, now);
  }
}

// What ended a moment ago may still be in a plan in flight and hold its pages. So a flush is done once the
// plans that were in flight when it was asked for are answered: at most two steps later.
void Engine::Impl::flush_what_is_due() {
  if (flushes.empty()) return;
  scheduler->flush_cache();
  const auto due = std::ranges::partition(
      flushes, [&](const PendingFlush& flush) { return flush.after > scheduler->last_answered(); });
  if (due.empty()) return;
  publish();  // whoever waited sees the outcome
  for (PendingFlush& flush : due) flush.done.set_value();
  flushes.erase(due.begin(), due.end());
}

void Engine::Impl::publish() {
  EngineStats stats = scheduler->stats(now());
  std::lock_guard lock(mutex);
  published = std::move(stats);
  waiting_since = scheduler->waiting_since();
}

// On the engine thread. The place and the name of the request are free before its client hears of the end;
// drain() hears of it afterwards.
void Engine::Impl::send_last(RequestId id, const OutputSink& sink, OutputEvent&& event) {
  {
    std::lock_guard lock(mutex);
    const auto it = live.find(id.value);
    live_choices -= it->second.choices;
    if (!it->second.rid.empty()) by_rid.erase(it->second.rid);
    live.erase(it);
    ++ending;
  }
  sink(std::move(event));
  std::lock_guard lock(mutex);
  --ending;
  if (live.empty()) quiet.notify_all();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Expected<std::unique_ptr<Engine>> Engine::start(EngineOptions options) {
  if (options.max_sequences < 1 || options.max_sequences > 4096)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--max-seqs {}: it must be between 1 and 4096", options.max_sequences),
                  "--max-seqs");
  if (options.max_queue < 0)
    return Status(ErrorCode::kInvalidArgument, "--max-queue must be at least 0", "--max-queue");
  if (options.prefill_chunk < 0)
    return Status(ErrorCode::kInvalidArgument, "--prefill-chunk must be at least 1, or auto",
                  "--prefill-chunk");
  if (!(options.max_token_gap > 0))
    return Status(ErrorCode::kInvalidArgument, "--max-token-gap must be above 0", "--max-token-gap");
  auto impl = std::make_unique<Impl>();
  Impl& at = *impl;
  at.options = std::move(options);
  SHOAL_ASSIGN(layout, Layout::make(at.options.degrees));
  at.plans_in_flight = static_cast<std::size_t>(layout.plans_in_flight() * layout.sub_batches());
  at.results.reserve(at.plans_in_flight);
  SHOAL_ASSIGN(tokenizer, tokenizer::Tokenizer::load(at.options.model));
  at.tokenizer = std::move(tokenizer);
  SHOAL_ASSIGN(executor,
               Executor::start(at.options, sequence_slots(at.options.max_sequences), at.callbacks()));
  at.executor = std::move(executor);

  const Executor::Loaded& loaded = at.executor->loaded();
  const model::ModelDescription& description = loaded.model->description();
  SchedulerOptions scheduler;
  scheduler.kv_groups = loaded.model->kv_groups();
  scheduler.kv_pages.assign(scheduler.kv_groups.size(), static_cast<std::int32_t>(loaded.kv_pages));
  scheduler.vocabulary = description.vocabulary;
  scheduler.parameters = description.parameters;
  scheduler.fingerprint = description.fingerprint;
  scheduler.context = loaded.context;
  scheduler.max_sequences = at.options.max_sequences;
  scheduler.plans_in_flight = layout.plans_in_flight();
  scheduler.stages = at.options.degrees.pp;
  scheduler.coordinates = layout.sub_batches();
  scheduler.partition = at.options.cp_partition;
  scheduler.cp_force = at.options.cp_force;
  scheduler.context_bytes = context_bytes(description, at.options);
  scheduler.offload.places = loaded.offload_places;
  scheduler.offload.page_bytes = loaded.offload_page_bytes;
  scheduler.offload.page_bytes_all = loaded.offload_page_bytes_all;
  scheduler.retract = at.options.retract;
  scheduler.batch.token_gap = at.options.max_token_gap;
  scheduler.batch.fixed_chunk = at.options.prefill_chunk;
  // What is asked for counts, whatever memory its activations take.
  scheduler.batch.max_rows = std::max(scheduler.batch.max_rows, at.options.prefill_chunk);
  at.scheduler = std::make_unique<Scheduler>(std::move(scheduler), at.tokenizer);
  at.publish();
  at.thread = std::thread([&at] { at.main(); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::~Engine() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_one();
  if (impl_->thread.joinable()) impl_->thread.join();
  // Before the queues it answers into.
  impl_->executor.reset();
}

Expected<RequestId> Engine::submit(GenerateRequest request, OutputSink sink) {
  Impl& at = *impl_;
  SHOAL_TRY(validate(request, description().vocabulary, context()));
  const std::int32_t most = at.options.max_sequences + at.options.max_queue;
  if (request.n > most)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("n is {}: the server runs and queues at most {} answers", request.n, most),
                  "n");
  if (request.arrival == TimePoint{}) request.arrival = now();
  RequestId id;
  {
    std::lock_guard lock(at.mutex);
    if (at.draining || at.stop) return Status(ErrorCode::kUnavailable, "the server is shutting down");
    if (!at.lost.empty())
      return Status(ErrorCode::kUnavailable, fmt::format("{}; the worker is starting anew", at.lost));
    if (!request.rid.empty() && at.by_rid.contains(request.rid))
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("a request named {} is running already", request.rid), "rid");
    if (at.live_choices + request.n > most)
      return Status(ErrorCode::kExhausted,
                    fmt::format("the queue is full: {} answers are running or waiting and {} may",
                                at.live_choices, most));
    id = RequestId(at.next_id++);
    at.live.emplace(id.value, LiveRequest{request.rid, request.n, false});
    if (!request.rid.empty()) at.by_rid.emplace(request.rid, id);
    at.live_choices += request.n;
    OutputSink counted = [&at, id, sink = std::move(sink)](OutputEvent&& event) {
      if (event.last) {
        at.send_last(id, sink, std::move(event));
      } else {
        sink(std::move(event));
      }
    };
    at.commands.emplace_back(SubmitCommand{id, std::move(request), std::move(counted)});
  }
  at.wake.notify_one();
  return id;
}

// Under the mutex. False where no such request lives.
bool Engine::Impl::queue_cancel(RequestId id) {
  const auto it = live.find(id.value);
  if (it == live.end()) return false;
  if (!it->second.cancelled) commands.emplace_back(CancelCommand{id});
  it->second.cancelled = true;
  return true;
}

bool Engine::cancel(RequestId id) {
  {
    std::lock_guard lock(impl_->mutex);
    if (!impl_->queue_cancel(id)) return false;
  }
  impl_->wake.notify_one();
  return true;
}

std::int32_t Engine::cancel_all() {
  std::int32_t count = 0;
  {
    std::lock_guard lock(impl_->mutex);
    count = static_cast<std::int32_t>(impl_->live.size());
    for (const auto& [id, request] : impl_->live) impl_->queue_cancel(RequestId(id));
  }
  impl_->wake.notify_one();
  return count;
}

void Engine::handover_called(RequestId id, std::int32_t choice) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->commands.emplace_back(CalledCommand{id, choice});
  }
  impl_->wake.notify_one();
}

void Engine::arrived(RequestId id, std::int32_t choice, FirstToken first) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->commands.emplace_back(ArrivedCommand{id, choice, std::move(first)});
  }
  impl_->wake.notify_one();
}

void Engine::handover_ended(RequestId id, std::int32_t choice, const Status& status) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->commands.emplace_back(HandoverEndedCommand{id, choice, status});
  }
  impl_->wake.notify_one();
}

Status Engine::tell_rank(std::int32_t rank, std::span<const std::byte> word) {
  return impl_->executor->tell(rank, word);
}

Status Engine::flush_cache() {
  FlushCommand command;
  std::future<void> done = command.done.get_future();
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->stop) return {ErrorCode::kUnavailable, "the server is shutting down"};
    impl_->commands.emplace_back(std::move(command));
  }
  impl_->wake.notify_one();
  done.get();
  return {};
}

bool Engine::drain(TimePoint deadline) {
  {
    std::unique_lock lock(impl_->mutex);
    impl_->draining = true;
    if (impl_->quiet.wait_until(lock, deadline, [&] { return impl_->all_ended(); })) return true;
  }
  cancel_all();
  // The engine thread ends them all as soon as it sees this: no deadline is needed.
  std::unique_lock lock(impl_->mutex);
  impl_->quiet.wait(lock, [&] { return impl_->all_ended(); });
  return false;
}

EngineStats Engine::stats() const {
  std::lock_guard lock(impl_->mutex);
  EngineStats stats = impl_->published;
  if (impl_->waiting_since) stats.seconds_since_progress = seconds_between(*impl_->waiting_since, now());
  return stats;
}

WorkerReport Engine::worker() const { return impl_->executor->report(); }
const KvPools& Engine::kv_pools() const { return impl_->executor->loaded().kv; }
comm::Ledger& Engine::ledger() const { return *impl_->executor->loaded().ledger; }

const model::ModelDescription& Engine::description() const {
  return impl_->executor->loaded().model->description();
}
std::shared_ptr<const tokenizer::Tokenizer> Engine::tokenizer() const { return impl_->tokenizer; }
std::int32_t Engine::context() const { return impl_->executor->loaded().context; }
std::vector<std::string> Engine::kernel_report() const {
  return impl_->executor->loaded().model->kernel_report();
}
std::size_t Engine::weight_bytes() const { return impl_->executor->loaded().model->weight_bytes(); }
std::size_t Engine::kv_bytes() const { return impl_->executor->loaded().kv_bytes; }
std::int32_t Engine::threads() const { return impl_->executor->loaded().threads; }

}  // namespace shoal::engine
