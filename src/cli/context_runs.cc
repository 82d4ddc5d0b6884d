#include "cli/context_runs.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <thread>

#include "comm/shm_carrier.h"
#include "core/clock.h"
#include "engine/rank.h"
#include "kernels/isa.h"
#include "kv/kv_store.h"
#include "parallel/peers.h"

namespace shoal::cli {
namespace {

using engine::TrafficSteps;

// bf16 0.0115, f32 0.0115: finite, and no zero page that the system would map once for all.
constexpr int kFill = 0x3c;

Expected<std::vector<std::unique_ptr<comm::Carrier>>> carriers_for(const Layout& layout) {
  comm::ShmLayout shm;
  shm.ranks = layout.ranks();
  SHOAL_ASSIGN(segment, comm::ShmSegment::create(shm));
  std::vector<std::unique_ptr<comm::Carrier>> carriers;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank)
    carriers.push_back(std::make_unique<comm::ShmCarrier>(
        segment, rank, comm::ShmCarrier::Options{comm::Patience{40'000}, nullptr}));
  return carriers;
}

// A step with as many rows as a chunk has, each segment of them a prompt of its own: next to no attention,
// and all of the memory that the chunk will take.
StepPlan warming_step(const TrafficSteps::Options& options) {
  TrafficSteps::Options warming = options;
  warming.prompt = warming.chunk = std::min(options.chunk, kPageTokens * kSegmentPages);
  warming.sequences = std::min(options.chunk, options.prompt) / warming.prompt;
  warming.partition = ContextPartition::kZigzag;
  std::vector<StepPlan> plans = TrafficSteps(warming).prefill();
  StepPlan whole = std::move(plans.front());
  for (std::size_t i = 1; i < plans.size(); ++i) {
    std::ranges::move(plans[i].opens, std::back_inserter(whole.opens));
    std::ranges::move(plans[i].grants, std::back_inserter(whole.grants));
    for (std::size_t c = 0; c < whole.sub_batches.size(); ++c)
      std::ranges::move(plans[i].sub_batches[c].items, std::back_inserter(whole.sub_batches[c].items));
  }
  return whole;
}

double waited(const comm::Ledger& ledger) {
  return ledger.totals(comm::Purpose::kCpRing).exposed + ledger.totals(comm::Purpose::kCpMerge).exposed;
}
double hidden(const comm::Ledger& ledger) {
  return ledger.totals(comm::Purpose::kCpRing).hidden + ledger.totals(comm::Purpose::kCpMerge).hidden;
}
std::uint64_t moved(const comm::Ledger& ledger) {
  return ledger.totals(comm::Purpose::kCpRing).payload + ledger.totals(comm::Purpose::kCpMerge).payload;
}

}  // namespace

Expected<std::unique_ptr<ContextRuns>> ContextRuns::load(const Options& options) {
  std::unique_ptr<ContextRuns> runs(new ContextRuns(options));
  SHOAL_ASSIGN(isa, kernels::chosen_isa());
  SHOAL_ASSIGN(layout, Layout::make({.cp = options.coordinates}));
  for (std::int32_t index = 0; index < options.coordinates; ++index) {
    auto at = std::make_unique<Coordinate>();
    at->pool = std::make_unique<ThreadPool>(ThreadPool::Options{.threads = options.threads, .pin = false});
    at->context = {at->pool.get(), isa, kernels::Activations::kAuto, options.strict};
    model::LoadOptions load;
    load.layout = layout;
    load.rank = index;
    load.context = at->context;
    SHOAL_ASSIGN(model, model::Model::load(options.model, load));
    at->model = std::move(model);
    runs->coordinates_.push_back(std::move(at));
  }
  return runs;
}

Status ContextRuns::run_one(std::int32_t index, const TrafficSteps::Options& options, What what,
                            comm::Carrier& carrier, ContextTimes& times) {
  flush_denormals_here();
  Coordinate& at = *coordinates_[static_cast<std::size_t>(index)];
  SHOAL_ASSIGN(layout, Layout::make({.cp = options.coordinates}));
  parallel::Peers peers(layout, index, carrier, at.ledger);
  at.model->set_peers(peers);
  TrafficSteps steps(options);
  std::vector<StepPlan> plans = what == What::kPrefill ? steps.prefill() : steps.decode_only();

  std::vector<std::int32_t> slots(static_cast<std::size_t>(options.coordinates));
  std::int64_t all = 0;
  for (std::int32_t sequence = 0; sequence < options.sequences; ++sequence) {
    for (const std::int32_t owner : steps.owners(sequence)) {
      ++slots[static_cast<std::size_t>(owner)];
      ++all;
    }
  }
  std::vector<KvLayout> layouts;
  for (const KvGroup& group : at.model->kv_groups()) {
    layouts.push_back(at.model->pool_layout(group.id, options_.kv_dtype));
    // As large on every coordinate, as they all check slots by their own. The step that warms up may not deal
    // as evenly.
    layouts.back().slots = *std::ranges::max_element(slots) + kSegmentPages;
  }
  SHOAL_ASSIGN(store, kv::KvStore::make(layouts, options.coordinates - 1));
  for (const KvView& view : store.views()) std::memset(view.base, kFill, view.layout.pool_bytes());
  engine::Rank::Options rank_options;
  rank_options.max_slots = options.sequences;
  rank_options.peers = &peers;
  rank_options.plans_in_flight = layout.plans_in_flight();
  // Memory that a pass is the first to touch may take it seconds to get, and not every coordinate is the
  // first.
  if (what == What::kPrefill) {
    const StepPlan step = warming_step(options);
    engine::Rank::Options warming = rank_options;
    warming.max_slots = static_cast<std::int32_t>(step.opens.size());
    const StepResult result = engine::Rank(*at.model, store, at.context, warming).run(step);
    SHOAL_TRY(peers.status());
    if (!result.error.empty()) return {ErrorCode::kInternal, result.error};
  }
  engine::Rank rank(*at.model, store, at.context, rank_options);

  // All begin together, however long each took to fill its pool.
  std::byte ready{};
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  std::vector<std::byte> theirs(static_cast<std::size_t>(options.coordinates));
  for (std::int32_t peer = 0; peer < options.coordinates; ++peer) {
    if (peer == index) continue;
    out.push_back({peer, {&ready, 1}});
    in.push_back({peer, {&theirs[static_cast<std::size_t>(peer)], 1}});
  }
  SHOAL_TRY(carrier.transfer(out, in, now() + std::chrono::minutes(1)));

  // The first decoded token comes with all grants: it warms up.
  const std::size_t first = what == What::kDecode && plans.size() > 1 ? 1 : 0;
  TimePoint began = now();
  double attention = at.model->attention_seconds();
  double wait = waited(at.ledger);
  double hid = hidden(at.ledger);
  std::uint64_t bytes = moved(at.ledger);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (i == first) {
      began = now();
      attention = at.model->attention_seconds();
      wait = waited(at.ledger);
      hid = hidden(at.ledger);
      bytes = moved(at.ledger);
    }
    const StepResult result = rank.run(plans[i]);
    SHOAL_TRY(peers.status());
    if (!result.error.empty()) return {ErrorCode::kInternal, result.error};
  }
  times.seconds = seconds_between(began, now());
  times.exposed = waited(at.ledger) - wait;
  times.hidden = hidden(at.ledger) - hid;
  times.attention = at.model->attention_seconds() - attention - times.exposed;
  times.bytes = moved(at.ledger) - bytes;
  times.kv_share = static_cast<double>(slots[static_cast<std::size_t>(index)]) / static_cast<double>(all);
  return {};
}

Expected<std::vector<ContextTimes>> ContextRuns::run(TrafficSteps::Options steps, What what) {
  steps.groups = static_cast<std::int32_t>(coordinates_.front()->model->kv_groups().size());
  steps.vocabulary = description().vocabulary;
  SHOAL_ASSIGN(layout, Layout::make({.cp = steps.coordinates}));
  SHOAL_ASSIGN(carriers, carriers_for(layout));
  std::vector<ContextTimes> times(static_cast<std::size_t>(steps.coordinates));
  std::vector<Status> outcomes(times.size());
  std::vector<std::thread> threads;
  for (std::int32_t index = 0; index < steps.coordinates; ++index) {
    threads.emplace_back([&, index] {
      const auto at = static_cast<std::size_t>(index);
      try {
        outcomes[at] = run_one(index, steps, what, *carriers[at], times[at]);
      } catch (const std::exception& error) {
        outcomes[at] = Status(ErrorCode::kInternal, error.what());
      }
      if (!outcomes[at].ok()) carriers[at]->abort(outcomes[at].message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) SHOAL_TRY(outcome);
  return times;
}

}  // namespace shoal::cli
