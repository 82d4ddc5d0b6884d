#include "engine/rank_parts.h"

#include <fmt/format.h>

#include <utility>

#include "comm/fault_carrier.h"
#include "kernels/isa.h"

namespace shoal::engine {
namespace {

model::LoadOptions load_options(const RankSettings& settings) {
  model::LoadOptions load;
  load.layout = settings.layout;
  load.rank = settings.rank;
  load.stage_layers = settings.stage_layers;
  load.balance = settings.balance;
  load.tp_split = settings.tp_split;
  load.weights = settings.weights;
  load.packed_cache = settings.packed_cache;
  return load;
}

}  // namespace

Status check_layout(const RankSettings& settings) {
  return model::Model::check(settings.model, load_options(settings));
}

Status RankParts::load_weights(const RankSettings& settings) {
  ThreadPool::Options pool_options;
  pool_options.threads = settings.threads > 0 ? settings.threads : usable_cores();
  if (!settings.spin) pool_options.spin = std::chrono::microseconds(0);
  // Ranks of one host would all be bound to the same first cores.
  if (settings.layout.ranks() > 1) pool_options.pin = false;
  pool = std::make_unique<ThreadPool>(pool_options);
  SHOAL_ASSIGN(isa, kernels::chosen_isa());
  context = {pool.get(), isa, settings.activations, settings.strict};
  sums = settings.sums;
  model::LoadOptions load = load_options(settings);
  load.context = context;
  if (settings.progress) {
    load.progress = [&](std::uint64_t done, std::uint64_t total) {
      settings.progress(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1);
    };
  }
  SHOAL_ASSIGN(loaded, model::Model::load(settings.model, load));
  model = std::move(loaded);
  return {};
}

std::size_t RankParts::page_bytes(KvDType dtype, std::int32_t coordinates) const {
  std::size_t total = 0;
  for (const KvGroup& group : model->kv_groups()) {
    KvLayout layout = model->pool_layout(group.id, dtype);
    layout.layers += coordinates - 1;  // the banks of make_pools()
    total += layout.page_bytes();
  }
  return total;
}

Status RankParts::make_pools(KvDType dtype, std::int64_t pages, std::int32_t offload_places,
                             std::int32_t coordinates) {
  std::vector<KvLayout> layouts;
  for (const KvGroup& group : model->kv_groups()) {
    layouts.push_back(model->pool_layout(group.id, dtype));
    layouts.back().slots = static_cast<std::int32_t>(pages);
  }
  SHOAL_ASSIGN(made, kv::KvStore::make(layouts, coordinates - 1));
  store.emplace(std::move(made));
  store->touch_first(*pool);
  offload.reset();
  if (offload_places == 0) return {};
  SHOAL_ASSIGN(kept, kv::OffloadBuffer::make(layouts, offload_places));
  offload.emplace(std::move(kept));
  return {};
}

void RankParts::connect(const RankMeeting& meeting, RankConnection to_others,
                        std::shared_ptr<comm::FaultPlan> faults) {
  connection = std::move(to_others);
  if (faults != nullptr)
    connection.carrier =
        std::make_unique<comm::FaultCarrier>(std::move(connection.carrier), std::move(faults));
  comm::Collectives::Options options;
  options.scopes = meeting.scopes();
  options.hosts = meeting.host_numbers();
  options.wire = sums;
  peers.emplace(meeting.layout, meeting.rank, *connection.carrier, *ledger, std::move(options));
  model->set_peers(*peers);
}

void RankParts::disconnect() {
  rank.reset();
  peers.reset();
  connection = {};
}

void RankParts::make_rank(Rank::Options options) {
  options.peers = peers ? &*peers : nullptr;
  options.offload = offload ? &*offload : nullptr;
  rank.emplace(*model, *store, context, std::move(options));
}

std::vector<KvPart> RankParts::kv_parts() const {
  std::vector<KvPart> parts;
  for (const KvGroup& group : model->kv_groups()) parts.push_back(model->kv_part(group.id));
  return parts;
}

RankService::Begin RankParts::service_begin() const {
  RankService::Begin begin;
  begin.pools.assign(store->views().begin(), store->views().end());
  for (const KvGroup& group : model->kv_groups()) begin.windows.push_back(group.window);
  begin.parts = kv_parts();
  begin.ledger = ledger;
  return begin;
}

std::vector<std::string> RankParts::kv_ids(KvDType dtype) const {
  std::vector<std::string> ids;
  for (const KvGroup& group : model->kv_groups())
    ids.push_back(
        fmt::format("v1/{}/{}w{}", dtype == KvDType::kBf16 ? "bf16" : "f32", group.head_dim, group.window));
  return ids;
}

}  // namespace shoal::engine
