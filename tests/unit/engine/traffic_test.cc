// What ranks' ledgers count over whole prompts and answers is what the formulas say, to the byte, on every
// rank and for every purpose that ranks have among themselves.

#include "layout/traffic.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "comm/fake_carrier.h"
#include "comm/shm_carrier.h"
#include "engine/engine_rig.h"
#include "engine/rank.h"
#include "engine/traffic_steps.h"
#include "kernels/isa.h"
#include "layout/context_traffic.h"
#include "layout/stages.h"
#include "parallel/peers.h"

namespace shoal::engine {
namespace {

struct Cut {
  Degrees degrees;
  std::vector<std::int32_t> stage_layers{};
  std::vector<std::int32_t> tp_split{};
  bool pass_queries = false;
  bool strict = false;
  ContextPartition partition = ContextPartition::kZigzag;
};

// One rank as a thread: what it counted, and what it should have.
struct Counted {
  StepTraffic expected;
  comm::Ledger ledger;
  std::vector<std::size_t> sampled;  // tokens of each step, where it samples
};

TrafficSteps::Options steps_of(const model::Model& model, const Cut& cut) {
  TrafficSteps::Options options;
  options.coordinates = cut.degrees.cp;
  options.partition = cut.partition;
  options.pass_queries = cut.pass_queries;
  options.sequences = 3;
  options.prompt = 70;  // of chunks of 32, the last one short
  options.chunk = 32;
  options.generate = 5;
  if (cut.degrees.cp > 1) {
    // Of every coordinate pages in every chunk, and a decoded segment that another owns.
    options.prompt = 250;
    options.chunk = 200;
    options.generate = 10;
  }
  options.groups = static_cast<std::int32_t>(model.kv_groups().size());
  options.vocabulary = model.description().vocabulary;
  return options;
}

// What sums go by.
struct Way {
  bool shared_memory = true;
  DType wire = DType::kF32;
};

void run_rank(const Cut& cut, const Way& way, std::int32_t index, comm::Carrier& carrier, Counted& counted) {
  const Layout layout = *Layout::make(cut.degrees);
  ThreadPool pool({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
  comm::Collectives::Options collectives;
  collectives.wire = way.wire;
  parallel::Peers peers(layout, index, carrier, counted.ledger, collectives);
  model::LoadOptions load;
  load.layout = layout;
  load.rank = index;
  load.stage_layers = cut.stage_layers;
  load.tp_split = cut.tp_split;
  load.context = {&pool, *kernels::chosen_isa(), kernels::Activations::kAuto, cut.strict};
  auto model = model::Model::load(stories(), load);
  ASSERT_TRUE(model.ok()) << model.error().message();
  (*model)->set_peers(peers);
  TrafficSteps steps(steps_of(**model, cut));
  std::vector<KvLayout> layouts;
  for (const KvGroup& group : (*model)->kv_groups()) {
    layouts.push_back((*model)->pool_layout(group.id, KvDType::kBf16));
    layouts.back().slots = static_cast<std::int32_t>(steps.pages());
  }
  auto store = kv::KvStore::make(layouts, cut.degrees.cp - 1);
  ASSERT_TRUE(store.ok());
  Rank::Options options;
  options.max_slots = 3;
  options.peers = &peers;
  options.plans_in_flight = layout.plans_in_flight();
  Rank rank(**model, *store, load.context, options);

  TrafficShape shape;
  shape.layout = layout;
  shape.hidden = (*model)->description().hidden;
  shape.stage_layers = (*model)->stage_layers();
  shape.shared_memory = way.shared_memory;
  shape.sum_bytes = way.wire == DType::kBF16 ? 2 : 4;
  if (cut.degrees.tp > 1) shape.vocabulary_ends = (*model)->vocabulary_ends();
  const Coordinate at = layout.coordinate(index);
  ContextShape context;
  context.coordinate = at.cp;
  const KvLayout& kv = layouts.front();
  context.kv_heads = kv.kv_heads;
  context.head_dim = kv.head_dim;
  context.query_heads = (*model)->description().layers.front().attention.query_heads / cut.degrees.tp;
  context.strict = cut.strict;
  context.groups = (*model)->kv_groups();
  context.last_stage = peers.last_stage();
  const LayerRange stage = layers_of_stage(shape.stage_layers, at.pp);
  for (std::int32_t layer = stage.begin; layer < stage.end; ++layer)
    context.layer_groups.push_back(
        (*model)->description().layers[static_cast<std::size_t>(layer)].attention.kv_group);
  ContextTables tables(static_cast<std::int32_t>(context.groups.size()));
  auto plans = steps.prefill();
  for (StepPlan& plan : steps.decode()) plans.push_back(std::move(plan));
  for (const StepPlan& plan : plans) {
    const StepResult result = rank.run(plan);
    ASSERT_TRUE(result.error.empty()) << result.error;
    ASSERT_TRUE(peers.status().ok()) << peers.status().message();
    if (peers.samples()) counted.sampled.push_back(result.sampled.size());
    counted.expected +=
        step_traffic(shape, StepRows::of(plan.sub_batches[static_cast<std::size_t>(at.cp)]), index);
    tables.apply(plan);
    if (cut.degrees.cp == 1) continue;
    const ContextStepTraffic moved = context_traffic(context, tables, plan);
    counted.expected.cp_ring += moved.ring;
    counted.expected.cp_merge += moved.merge;
  }
}

std::vector<std::unique_ptr<comm::Carrier>> shared_carriers(const Layout& layout) {
  comm::ShmLayout shm;
  shm.ranks = layout.ranks();
  shm.arena_bytes = 1 << 20;
  for (std::int32_t rank = 0; rank < layout.ranks(); rank += layout.degrees().tp)
    shm.groups.push_back(layout.group(GroupKind::kAttentionTensor, rank).ranks);
  const auto segment = *comm::ShmSegment::create(shm);
  std::vector<std::unique_ptr<comm::Carrier>> carriers;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank)
    carriers.push_back(std::make_unique<comm::ShmCarrier>(
        segment, rank, comm::ShmCarrier::Options{comm::Patience{0}, nullptr}));
  return carriers;
}

void expect_equal(const Traffic& expected, const comm::Charge& counted, const char* purpose) {
  SCOPED_TRACE(purpose);
  EXPECT_EQ(counted.calls, expected.calls);
  EXPECT_EQ(counted.payload, expected.payload);
  EXPECT_EQ(counted.wire[0], expected.wire);
}

void expect_formulas(const Way& way) {
  for (const Cut& cut :
       {Cut{{.tp = 2}}, Cut{{.tp = 2}, {}, {3, 1}}, Cut{{.tp = 3}}, Cut{{.pp = 2}}, Cut{{.pp = 3}, {1, 3, 1}},
        Cut{{.tp = 2, .pp = 2}}, Cut{{.cp = 2}}, Cut{{.cp = 2}, {}, {}, true},
        Cut{{.cp = 2}, {}, {}, true, true}, Cut{{.cp = 3}, {}, {}, false, true, ContextPartition::kStriped},
        Cut{{.tp = 2, .pp = 2, .cp = 2}}}) {
    const Layout layout = *Layout::make(cut.degrees);
    SCOPED_TRACE(layout.to_string());
    const auto carriers =
        way.shared_memory ? shared_carriers(layout) : comm::FakeNetwork::carriers(layout.ranks());
    std::vector<Counted> counted(static_cast<std::size_t>(layout.ranks()));
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      threads.emplace_back([&, rank, at] { run_rank(cut, way, rank, *carriers[at], counted[at]); });
    }
    for (std::thread& thread : threads) thread.join();
    bool samples = false;
    for (std::size_t rank = 0; rank < counted.size(); ++rank) {
      SCOPED_TRACE(rank);
      const Counted& one = counted[rank];
      expect_equal(one.expected.tp, one.ledger.totals(comm::Purpose::kTp), "tp");
      expect_equal(one.expected.pp, one.ledger.totals(comm::Purpose::kPp), "pp");
      expect_equal(one.expected.sample, one.ledger.totals(comm::Purpose::kSample), "sample");
      expect_equal(one.expected.cp_ring, one.ledger.totals(comm::Purpose::kCpRing), "cp_ring");
      expect_equal(one.expected.cp_merge, one.ledger.totals(comm::Purpose::kCpMerge), "cp_merge");
      EXPECT_EQ(one.expected.cp_ring.payload > 0, cut.degrees.cp > 1);
      EXPECT_EQ(one.expected.cp_merge.payload > 0, cut.degrees.cp > 1);
      expect_equal(one.expected.plan, one.ledger.totals(comm::Purpose::kPlan), "plan");
      EXPECT_EQ(one.expected.tp.payload > 0, cut.degrees.tp > 1);
      if (one.sampled.empty() || cut.degrees.cp > 1) {
        samples = samples || cut.degrees.cp > 1;
        continue;
      }
      samples = true;
      // Three prompts of three chunks, then five tokens for all.
      EXPECT_EQ(one.sampled, (std::vector<std::size_t>{0, 0, 1, 0, 0, 1, 0, 0, 1, 3, 3, 3, 3, 3}));
    }
    EXPECT_TRUE(samples);
  }
}

TEST(RankTraffic, LedgersCountWhatTheFormulasSay) {
  if (!std::filesystem::exists(stories())) GTEST_SKIP() << "no models in shared/";
  for (const Way& way : {Way{}, Way{false}, Way{false, DType::kBF16}}) {
    SCOPED_TRACE(testing::Message() << (way.shared_memory ? "memory" : "messages") << " "
                                    << dtype_name(way.wire));
    expect_formulas(way);
  }
}

}  // namespace
}  // namespace shoal::engine
