#include "engine/executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <future>
#include <iterator>
#include <utility>

#include "core/log.h"
#include "core/thread_pool.h"
#include "engine/executor_impl.h"

namespace shoal::engine {
namespace {

StepResult failed_result(PlanNumber number, const std::string& sentence) {
  StepResult result;
  result.number = number;
  result.error = sentence;
  result.lost = true;
  return result;
}

// What one coordinate answers, added to what others have.
void merge(StepResult& all, StepResult one) {
  if (all.error.empty()) all.error = std::move(one.error);
  std::ranges::move(one.sampled, std::back_inserter(all.sampled));
  std::ranges::move(one.prompt_logprobs, std::back_inserter(all.prompt_logprobs));
  if (one.copy_seconds > all.copy_seconds) {
    all.copied_bytes = one.copied_bytes;
    all.copy_seconds = one.copy_seconds;
  }
  // Coordinates run side by side: a step lasts as long as the slowest.
  all.stage_seconds.resize(std::max(all.stage_seconds.size(), one.stage_seconds.size()));
  for (std::size_t i = 0; i < one.stage_seconds.size(); ++i)
    all.stage_seconds[i] = std::max(all.stage_seconds[i], one.stage_seconds[i]);
}

}  // namespace

void Executor::Impl::main(const EngineOptions& options, std::int32_t max_slots,
                          std::promise<Status> started) {
  flush_denormals_here();
  RankParts parts;
  ledger = parts.ledger;
  Status status;
  try {
    status = load(options, max_slots, parts);
  } catch (const std::exception& error) {
    status = Status(ErrorCode::kInternal, fmt::format("loading the model failed: {}", error.what()));
  }
  // options is the caller's and gone once start() returns.
  settings.progress = {};
  started.set_value(status);
  if (status.ok()) serve(parts);
  if (service != nullptr) service->end();
  interrupt.release();
}

void Executor::Impl::serve(RankParts& parts) {
  for (;;) {
    std::optional<StepPlan> plan;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return stop || !plans.empty() || resume_at; });
      if (plans.empty() && stop) return;
      if (!resume_at) {
        plan = std::move(plans.front());
        plans.pop_front();
      }
    }
    if (!plan) {
      if (!recover(parts)) return;
      continue;
    }
    if (faults) faults->pass(comm::FaultPoint::kPlan, 0);
    StepResult result = parts.rank->run(*plan);
    if (!parts.peers) {
      answer(std::move(result));
    } else if (!parts.peers->status().ok()) {
      lose(parts.peers->status());
    } else if (parts.rank->answers(*plan)) {
      answer(std::move(result));
    }
  }
}

void Executor::Impl::answer(StepResult result) {
  {
    const std::lock_guard lock(answering);
    const auto due = std::ranges::find(unanswered, result.number, &Unanswered::number);
    if (due != unanswered.end() && due->missing > 0) {
      --due->missing;
      merge(due->result, std::move(result));
      hand_on_what_is_answered();
      return;
    }
    if (!lost.empty()) return;
  }
  lose({ErrorCode::kCorrupt, fmt::format("an answer to step plan {} was not due", result.number.value)});
}

// One coordinate may be ahead of another: plans that share one are answered in order.
void Executor::Impl::hand_on_what_is_answered() {
  CoordinateSet held_up;
  for (auto plan = unanswered.begin(); plan != unanswered.end();) {
    if (plan->missing > 0 || held_up.meets(plan->coordinates)) {
      held_up.add(plan->coordinates);
      ++plan;
    } else {
      callbacks.done(std::move(plan->result));
      plan = unanswered.erase(plan);
    }
  }
}

// Every plan in flight fails, and every later one at once, until the next epoch serves.
void Executor::Impl::lose(const Status& status) {
  Epoch ended;
  {
    const std::lock_guard lock(answering);
    if (!lost.empty()) return;
    lost = status.message();
    ended = epoch;
    interrupt.trip(lost);
    // Before the answers: whoever reads them knows what they mean.
    callbacks.lost(status);
    for (; !unanswered.empty(); unanswered.pop_front())
      callbacks.done(failed_result(unanswered.front().number, lost));
  }
  log(LogLevel::kWarn, "worker.lost_rank", "epoch={} reason=\"{}\"", ended.value, status.message());
}

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Expected<std::unique_ptr<Executor>> Executor::start(const EngineOptions& options, std::int32_t max_slots,
                                                    Callbacks callbacks) {
  auto impl = std::make_unique<Impl>();
  impl->callbacks = std::move(callbacks);
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
  if (impl_->ranks != nullptr) {
    impl_->ranks->cancel();
    // Ends the carriers of an epoch that is being begun. Of one that serves, what is queued is run first.
    const std::lock_guard lock(impl_->answering);
    if (!impl_->lost.empty()) impl_->interrupt.trip("the worker is being stopped");
  }
  if (impl_->thread.joinable()) impl_->thread.join();
  // Its links call back into what follows.
  impl_->ranks.reset();
}

void Executor::push(StepPlan plan) {
  {
    const std::lock_guard lock(impl_->answering);
    if (!impl_->lost.empty()) return impl_->callbacks.done(failed_result(plan.number, impl_->lost));
    plan.epoch = impl_->epoch;
    StepResult nothing_yet;
    nothing_yet.number = plan.number;
    const CoordinateSet asked = plan.coordinates.empty() ? impl_->coordinates() : plan.coordinates;
    impl_->unanswered.push_back({plan.number, asked, asked.count(), std::move(nothing_yet)});
  }
  if (impl_->ranks != nullptr) impl_->ranks->broadcast(plan);
  {
    std::lock_guard lock(impl_->mutex);
    impl_->plans.push_back(std::move(plan));
  }
  impl_->wake.notify_one();
}

void Executor::resume(PlanNumber next) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->resume_at = next;
  }
  impl_->wake.notify_one();
}

WorkerReport Executor::report() const {
  WorkerReport report;
  {
    const std::lock_guard lock(impl_->answering);
    report.epoch = impl_->epoch;
    report.lost = impl_->lost;
  }
  if (impl_->ranks == nullptr) return report;
  report.ranks = impl_->ranks->reports();
  RankReport& head = report.ranks.front();
  head.state = report.lost.empty() ? "ready" : "waiting";
  head.pid = static_cast<std::int32_t>(::getpid());
  add(head.traffic, totals_of(*impl_->ledger));
  return report;
}

Status Executor::tell(std::int32_t rank, std::span<const std::byte> word) {
  if (rank > 0 && impl_->ranks != nullptr) return impl_->ranks->tell(rank, word);
  if (impl_->service != nullptr) impl_->service->take(word);
  return {};
}

const Executor::Loaded& Executor::loaded() const { return impl_->loaded; }

}  // namespace shoal::engine
