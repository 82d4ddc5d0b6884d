#include "engine/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "comm/shm_meeting.h"
#include "core/available_memory.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "engine/pool_size.h"
#include "engine/rank_carrier.h"
#include "engine/rank_parts.h"
#include "engine/worker_ranks.h"
#include "kernels/isa.h"
#include "kv/page_table.h"
#include "layout/layout_speed.h"
#include "parallel/peers.h"

namespace shoal::engine {
namespace {

// Of this worker's ranks: they are started once, with it.
constexpr Epoch kEpoch{1};

Expected<std::int32_t> context_limit(const EngineOptions& options, const model::ModelDescription& model) {
  if (options.context < 0 || options.context > model.context_length)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--ctx {}: {} was made for a context of {} tokens", options.context, model.name,
                              model.context_length),
                  "--ctx");
  return options.context > 0 ? options.context : model.context_length;
}

RankSettings settings_of(const EngineOptions& options, const Layout& layout) {
  RankSettings settings;
  settings.model = options.model;
  settings.layout = layout;
  settings.stage_layers = options.stage_layers;
  settings.balance = options.balance;
  settings.tp_split = options.tp_split;
  // Ranks of one host share its cores.
  settings.threads = options.threads > 0 ? options.threads : std::max(usable_cores() / layout.ranks(), 1);
  settings.spin = settings.threads * layout.ranks() <= usable_cores() || layout.ranks() == 1;
  settings.kv_dtype = options.kv_dtype;
  settings.activations = options.activations;
  settings.strict = options.deterministic;
  settings.weights = options.weights;
  if (options.progress)
    settings.progress = [&options](double fraction) { options.progress("weights", fraction); };
  return settings;
}

wire::Assign assign_of(const EngineOptions& options, const RankSettings& settings, std::int32_t max_slots) {
  wire::Assign assign;
  assign.degrees = settings.layout.degrees();
  assign.epoch = kEpoch;
  std::error_code ignored;
  assign.model = std::filesystem::absolute(options.model, ignored).string();
  assign.kv_dtype = options.kv_dtype == KvDType::kF32 ? "f32" : "bf16";
  assign.activations = options.activations == kernels::Activations::kF32 ? "f32" : "auto";
  assign.weights = options.weights ? dtype_name(*options.weights) : "";
  assign.strict = options.deterministic;
  assign.threads = settings.threads;
  assign.max_slots = max_slots;
  assign.spin = settings.spin;
  assign.stage_layers = options.stage_layers;
  assign.tp_split = options.tp_split;
  assign.balance = balance_name(options.balance);
  return assign;
}

// What must be the same on all ranks is.
Status check_alike(const RankParts& own, const EngineOptions& options,
                   const std::vector<wire::Loaded>& loaded) {
  const std::string& fingerprint = own.model->description().fingerprint;
  const auto kv_ids = own.kv_ids(options.kv_dtype);
  const std::string isa(kernels::isa_name(own.context.isa));
  for (std::size_t rank = 1; rank < loaded.size(); ++rank) {
    const wire::Loaded& theirs = loaded[rank];
    const auto differs = [&](const char* what, const std::string& here, const std::string& there) {
      return Status(
          ErrorCode::kInvalidArgument,
          fmt::format("rank {} holds {} {}, rank 0 {}: start all from the same", rank, what, there, here));
    };
    if (theirs.fingerprint != fingerprint) return differs("model", fingerprint, theirs.fingerprint);
    if (theirs.kv_ids != kv_ids)
      return differs("KV layout", fmt::format("{}", fmt::join(kv_ids, " ")),
                     fmt::format("{}", fmt::join(theirs.kv_ids, " ")));
    if (options.deterministic && theirs.isa != isa) return differs("instruction set", isa, theirs.isa);
  }
  return {};
}

// Pages of every pool, the same on all ranks: what all ranks of the host hold of a page counts.
Expected<std::int64_t> choose_pages(const EngineOptions& options, const RankParts& parts,
                                    const std::vector<wire::Loaded>& others, std::int32_t context) {
  PoolRequest request{options.kv_pages,       options.kv_bytes,      parts.page_bytes(options.kv_dtype),
                      kv::pages_for(context), options.max_sequences, available_memory()};
  for (const wire::Loaded& other : others) request.page_bytes += other.page_bytes;
  return pool_pages(request);
}

// Two of a layer's sums over shared memory take some 5 us each; ranks that share a core sleep and wake
// instead.
constexpr double kSumSeconds = 5e-6;
constexpr double kSleepingSumSeconds = 100e-6;

void warn_if_slow(const RankSettings& settings, const model::Model& model) {
  const model::ModelCosts& costs = model.decode_costs();
  LayoutFacts facts;
  facts.degrees = settings.layout.degrees();
  facts.tp_split = settings.tp_split;
  facts.stage_bytes = stage_costs(costs.layers, costs.head, model.stage_layers());
  facts.sums = 2 * static_cast<std::int32_t>(costs.layers.size());
  facts.threads = settings.threads;
  facts.cores = usable_cores();
  facts.sum_seconds = settings.spin ? kSumSeconds : kSleepingSumSeconds;
  if (const auto reason = why_slower_than_one_rank(facts))
    log(LogLevel::kWarn, "layout.slow", "layout=\"{}\" reason=\"{}\"", settings.layout.to_string(), *reason);
}

StepResult failed_result(PlanNumber number, const std::string& sentence) {
  StepResult result;
  result.number = number;
  result.error = sentence;
  return result;
}

}  // namespace

struct Executor::Impl {
  std::function<void(StepResult)> done;
  std::function<void(const Status&)> on_lost;
  Loaded loaded;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<StepPlan> plans;
  bool stop = false;
  std::thread thread;

  // Where there are other ranks. Made while loading; broadcast() is the engine thread's.
  std::unique_ptr<WorkerRanks> ranks;
  std::shared_ptr<comm::ShmSegment> segment;
  // Results come from whichever rank samples, losses from any: both under this mutex.
  std::mutex answering;
  std::deque<PlanNumber> unanswered;
  std::string lost;  // empty: nobody

  void main(const EngineOptions& options, std::int32_t max_slots, std::promise<Status> started);
  Status load(const EngineOptions& options, std::int32_t max_slots, RankParts& parts);
  Status start_ranks(const EngineOptions& options, const RankSettings& settings, std::int32_t max_slots);
  Status connect_ranks(const RankSettings& settings, RankParts& parts,
                       const std::vector<wire::Loaded>& others);
  void serve(RankParts& parts);
  void answer(StepResult result);
  void lose(const Status& status);
};

void Executor::Impl::main(const EngineOptions& options, std::int32_t max_slots,
                          std::promise<Status> started) {
  flush_denormals_here();
  RankParts parts;
  Status status;
  try {
    status = load(options, max_slots, parts);
  } catch (const std::exception& error) {
    status = Status(ErrorCode::kInternal, fmt::format("loading the model failed: {}", error.what()));
  }
  // options is the caller's and gone once start() returns.
  started.set_value(status);
  if (status.ok()) serve(parts);
}

Status Executor::Impl::load(const EngineOptions& options, std::int32_t max_slots, RankParts& parts) {
  SHOAL_ASSIGN(layout, Layout::make(options.degrees));
  const RankSettings settings = settings_of(options, layout);
  if (layout.ranks() > 1) SHOAL_TRY(start_ranks(options, settings, max_slots));
  SHOAL_TRY(parts.load_weights(settings));
  SHOAL_ASSIGN(context, context_limit(options, parts.model->description()));
  std::vector<wire::Loaded> others;
  if (ranks != nullptr) {
    SHOAL_ASSIGN(all, ranks->await_loaded());
    SHOAL_TRY(check_alike(parts, options, all));
    others = std::move(all);
  }
  SHOAL_ASSIGN(pages, choose_pages(options, parts, others, context));
  loaded.kv_pages = pages;
  SHOAL_TRY(parts.make_pools(options.kv_dtype, pages));
  if (ranks != nullptr) SHOAL_TRY(connect_ranks(settings, parts, others));
  if (ranks != nullptr) warn_if_slow(settings, *parts.model);
  Rank::Options rank_options;
  rank_options.max_slots = max_slots;
  rank_options.observer = options.logits_observer;
  rank_options.plans_in_flight = layout.plans_in_flight();
  parts.make_rank(std::move(rank_options));

  loaded.model = parts.model.get();
  loaded.kv_bytes = parts.store->bytes();
  loaded.threads = settings.threads;
  loaded.context = static_cast<std::int32_t>(std::min<std::int64_t>(context, pages * kPageTokens));
  if (loaded.context < context)
    log(LogLevel::kWarn, "kv.small", "pages={} context={} asked={}", pages, loaded.context, context);
  return {};
}

Status Executor::Impl::start_ranks(const EngineOptions& options, const RankSettings& settings,
                                   std::int32_t max_slots) {
  SHOAL_TRY(parallel::check_degrees(settings.layout));
  if (options.launcher == nullptr)
    return {ErrorCode::kInternal, "a layout of several ranks needs somebody who starts them"};
  on_lost = options.on_lost;
  WorkerRanks::Options ranks_options;
  ranks_options.layout = settings.layout;
  ranks_options.assign = assign_of(options, settings, max_slots);
  ranks_options.build = options.build;
  ranks_options.host = comm::host_identity();
  ranks_options.launcher = options.launcher;
  ranks_options.result = [this](StepResult result) { answer(std::move(result)); };
  ranks_options.lost = [this](const Status& status) { lose(status); };
  SHOAL_ASSIGN(started, WorkerRanks::start(std::move(ranks_options)));
  ranks = std::move(started);
  return {};
}

// All have loaded: they get their memory and meet.
Status Executor::Impl::connect_ranks(const RankSettings& settings, RankParts& parts,
                                     const std::vector<wire::Loaded>& others) {
  wire::Start start;
  start.pages = loaded.kv_pages;
  start.lanes = parts.pool->size();
  for (std::size_t rank = 1; rank < others.size(); ++rank)
    start.lanes = std::min(start.lanes, others[rank].threads);
  if (start.lanes < 1) return {ErrorCode::kCorrupt, "a rank has joined with no threads"};
  start.ring_bytes = ring_bytes_for(settings.layout, parts.model->description().hidden);
  start.hosts.assign(others.size(), comm::host_identity());
  SHOAL_ASSIGN(made,
               comm::ShmSegment::create(shm_layout_for(settings.layout, start.lanes, start.ring_bytes)));
  segment = made;
  SHOAL_ASSIGN(meeting, comm::ShmHost::open(segment));
  start.meeting = meeting->name();
  SHOAL_TRY(ranks->begin(start));
  parts.connect(settings.layout, 0, shm_carrier_for(segment, 0, settings.spin, *parts.pool));
  // The meeting point stays open until all are there.
  return ranks->await_ready();
}

void Executor::Impl::serve(RankParts& parts) {
  for (;;) {
    StepPlan plan;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return stop || !plans.empty(); });
      if (plans.empty()) return;
      plan = std::move(plans.front());
      plans.pop_front();
    }
    StepResult result = parts.rank->run(plan);
    if (!parts.peers) {
      answer(std::move(result));
    } else if (!parts.peers->status().ok()) {
      lose(parts.peers->status());
    } else if (parts.peers->samples()) {
      answer(std::move(result));
    }
  }
}

void Executor::Impl::answer(StepResult result) {
  {
    const std::lock_guard lock(answering);
    if (!unanswered.empty() && unanswered.front() == result.number) {
      unanswered.pop_front();
      return done(std::move(result));
    }
    if (!lost.empty()) return;
  }
  lose({ErrorCode::kCorrupt, fmt::format("an answer to step plan {} was not due", result.number.value)});
}

// Every plan in flight fails, and every later one at once.
void Executor::Impl::lose(const Status& status) {
  {
    const std::lock_guard lock(answering);
    if (!lost.empty()) return;
    lost = status.message();
    segment->abort(lost);
    for (; !unanswered.empty(); unanswered.pop_front()) done(failed_result(unanswered.front(), lost));
  }
  if (on_lost) on_lost(status);
}

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Expected<std::unique_ptr<Executor>> Executor::start(const EngineOptions& options, std::int32_t max_slots,
                                                    std::function<void(StepResult)> done) {
  auto impl = std::make_unique<Impl>();
  impl->done = std::move(done);
  std::promise<Status> started;
  std::future<Status> outcome = started.get_future();
  impl->thread = std::thread([&options, max_slots, raw = impl.get(), started = std::move(started)]() mutable {
    raw->main(options, max_slots, std::move(started));
  });
  const Status status = outcome.get();
  std::unique_ptr<Executor> executor(new Executor(std::move(impl)));
  if (!status.ok()) return status;
  return executor;
}

Executor::~Executor() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_one();
  if (impl_->thread.joinable()) impl_->thread.join();
  // Its links call back into what follows.
  impl_->ranks.reset();
}

void Executor::push(StepPlan plan) {
  plan.epoch = kEpoch;
  {
    const std::lock_guard lock(impl_->answering);
    if (!impl_->lost.empty()) return impl_->done(failed_result(plan.number, impl_->lost));
    impl_->unanswered.push_back(plan.number);
  }
  if (impl_->ranks != nullptr) impl_->ranks->broadcast(plan);
  {
    std::lock_guard lock(impl_->mutex);
    impl_->plans.push_back(std::move(plan));
  }
  impl_->wake.notify_one();
}

const Executor::Loaded& Executor::loaded() const { return impl_->loaded; }

}  // namespace shoal::engine
