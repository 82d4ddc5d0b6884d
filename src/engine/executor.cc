#include "engine/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "core/log.h"
#include "core/thread_pool.h"
#include "engine/pool_size.h"
#include "engine/rank.h"
#include "kernels/isa.h"
#include "kv/kv_store.h"
#include "kv/page_table.h"

namespace shoal::engine {
namespace {

// Everything the executor thread owns: made and destroyed there.
struct RankParts {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<model::Model> model;
  std::optional<kv::KvStore> store;
  std::optional<Rank> rank;
  Executor::Loaded loaded;
};

Expected<std::int32_t> context_limit(const EngineOptions& options, const model::ModelDescription& model) {
  if (options.context < 0 || options.context > model.context_length)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--ctx {}: {} was made for a context of {} tokens", options.context, model.name,
                              model.context_length),
                  "--ctx");
  return options.context > 0 ? options.context : model.context_length;
}

Status make_pools(const EngineOptions& options, RankParts& parts) {
  SHOAL_ASSIGN(context, context_limit(options, parts.model->description()));
  std::vector<KvLayout> layouts;
  PoolRequest request{options.kv_pages,       options.kv_bytes,      0,
                      kv::pages_for(context), options.max_sequences, available_memory()};
  for (const KvGroup& group : parts.model->kv_groups()) {
    layouts.push_back(parts.model->pool_layout(group.id, options.kv_dtype));
    layouts.back().slots = 1;
    request.page_bytes += layouts.back().page_bytes();
  }
  SHOAL_ASSIGN(pages, pool_pages(request));
  for (KvLayout& layout : layouts) layout.slots = static_cast<std::int32_t>(pages);
  SHOAL_ASSIGN(store, kv::KvStore::make(layouts));
  parts.store.emplace(std::move(store));
  parts.loaded.kv_pages = pages;
  parts.loaded.kv_bytes = parts.store->bytes();
  parts.loaded.context = static_cast<std::int32_t>(std::min<std::int64_t>(context, pages * kPageTokens));
  if (parts.loaded.context < context)
    log(LogLevel::kWarn, "kv.small", "pages={} context={} asked={}", pages, parts.loaded.context, context);
  return {};
}

Status load(const EngineOptions& options, std::int32_t max_slots, RankParts& parts) {
  const std::int32_t threads = options.threads > 0 ? options.threads : usable_cores();
  ThreadPool::Options pool_options;
  pool_options.threads = threads;
  parts.pool = std::make_unique<ThreadPool>(pool_options);
  SHOAL_ASSIGN(isa, kernels::chosen_isa());
  const kernels::Context context{parts.pool.get(), isa, options.activations, options.deterministic};
  model::LoadOptions load_options;
  load_options.context = context;
  load_options.weights = options.weights;
  if (options.progress) {
    load_options.progress = [&](std::uint64_t done, std::uint64_t total) {
      options.progress("weights", total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1);
    };
  }
  auto model = model::Model::load(options.model, load_options);
  if (!model.ok()) return model.error();
  parts.model = std::move(*model);
  SHOAL_TRY(make_pools(options, parts));
  parts.rank.emplace(*parts.model, *parts.store, context,
                     Rank::Options{max_slots, 0, options.logits_observer});
  parts.loaded.model = parts.model.get();
  parts.loaded.threads = threads;
  return {};
}

}  // namespace

struct Executor::Impl {
  std::function<void(StepResult)> done;
  Loaded loaded;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<StepPlan> plans;
  bool stop = false;
  std::thread thread;

  void main(const EngineOptions& options, std::int32_t max_slots, std::promise<Status> started) {
    flush_denormals_here();
    RankParts parts;
    Status status;
    try {
      status = load(options, max_slots, parts);
    } catch (const std::exception& error) {
      status = Status(ErrorCode::kInternal, fmt::format("loading the model failed: {}", error.what()));
    }
    loaded = parts.loaded;
    // options is the caller's and gone once start() returns.
    started.set_value(status);
    if (status.ok()) serve(*parts.rank);
  }

  void serve(Rank& rank) {
    for (;;) {
      StepPlan plan;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stop || !plans.empty(); });
        if (plans.empty()) return;
        plan = std::move(plans.front());
        plans.pop_front();
      }
      done(rank.run(plan));
    }
  }
};

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
}

void Executor::push(StepPlan plan) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->plans.push_back(std::move(plan));
  }
  impl_->wake.notify_one();
}

const Executor::Loaded& Executor::loaded() const { return impl_->loaded; }

}  // namespace shoal::engine
