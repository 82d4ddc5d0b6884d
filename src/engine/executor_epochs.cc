// How the worker's own rank comes to serve with the others: loading, comparing, meeting, and beginning anew
// when one is lost.

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <utility>

#include "comm/shm_meeting.h"
#include "comm/ucx_library.h"
#include "core/available_memory.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "engine/executor_impl.h"
#include "engine/pool_size.h"
#include "engine/rank_carrier.h"
#include "kernels/isa.h"
#include "kv/page_table.h"
#include "layout/layout_speed.h"

namespace shoal::engine {
namespace {

// For the carriers, once all have loaded.
constexpr std::chrono::seconds kMeetingTime{20};
// Between attempts at an epoch: none before the first, then 1 s, doubled up to this.
constexpr std::chrono::seconds kLongestPause{30};

Expected<std::int32_t> context_limit(const EngineOptions& options, const model::ModelDescription& model) {
  if (options.context < 0 || options.context > model.context_length)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--ctx {}: {} was made for a context of {} tokens", options.context, model.name,
                              model.context_length),
                  "--ctx");
  return options.context > 0 ? options.context : model.context_length;
}

// With what the options leave open.
RankJoining joining_of(const EngineOptions& options, const Layout& layout) {
  RankJoining joining = options.joining;
  if (joining.host.empty()) joining.host = comm::host_identity();
  if (joining.local_ranks == 0) joining.local_ranks = layout.ranks();
  return joining;
}

Status check_joining(const RankJoining& joining, const Layout& layout) {
  if (joining.local_ranks < 1 || joining.local_ranks > layout.ranks())
    return {ErrorCode::kInvalidArgument,
            fmt::format("--local-ranks {}: the layout {} has {} ranks, this one included",
                        joining.local_ranks, layout.to_string(), layout.ranks()),
            "--local-ranks"};
  if (joining.local_ranks < layout.ranks() && !joining.from_elsewhere())
    return {ErrorCode::kInvalidArgument,
            fmt::format("--local-ranks {}: the other {} ranks need --listen-ranks to join at",
                        joining.local_ranks, layout.ranks() - joining.local_ranks),
            "--local-ranks"};
  if (!joining.fabric.empty()) SHOAL_TRY(comm::check_fabric(joining.fabric));
  if (layout.ranks() == 1 && joining.from_elsewhere())
    return {ErrorCode::kInvalidArgument, "--listen-ranks: with --tp 1 --pp 1 --cp 1 no rank has to join",
            "--listen-ranks"};
  return {};
}

Status check_sums(const EngineOptions& options) {
  if (options.sums == DType::kF32 || !options.deterministic) return {};
  return {ErrorCode::kInvalidArgument,
          "--wire bf16 rounds what ranks add up, and then the layout shows: leave it out, or --deterministic",
          "--wire"};
}

RankSettings settings_of(const EngineOptions& options, const Layout& layout) {
  const std::int32_t here = joining_of(options, layout).local_ranks;
  RankSettings settings;
  settings.model = options.model;
  settings.layout = layout;
  settings.stage_layers = options.stage_layers;
  settings.balance = options.balance;
  settings.tp_split = options.tp_split;
  settings.sums = options.sums;
  // Ranks of one host share its cores.
  settings.threads = options.threads > 0 ? options.threads : std::max(usable_cores() / here, 1);
  settings.spin = settings.threads * here <= usable_cores() || layout.ranks() == 1;
  settings.kv_dtype = options.kv_dtype;
  settings.activations = options.activations;
  settings.strict = options.deterministic;
  settings.weights = options.weights;
  settings.packed_cache = options.packed_cache;
  if (options.progress)
    settings.progress = [&options](double fraction) { options.progress("weights", fraction); };
  return settings;
}

wire::Assign assign_of(const EngineOptions& options, const RankSettings& settings, std::int32_t max_slots) {
  wire::Assign assign;
  assign.degrees = settings.layout.degrees();
  std::error_code ignored;
  assign.model = std::filesystem::absolute(options.model, ignored).string();
  assign.kv_dtype = options.kv_dtype == KvDType::kF32 ? "f32" : "bf16";
  assign.activations = options.activations == kernels::Activations::kF32 ? "f32" : "auto";
  assign.weights = options.weights ? dtype_name(*options.weights) : "";
  if (!options.packed_cache.empty())
    assign.packed_cache = std::filesystem::absolute(options.packed_cache, ignored).string();
  assign.strict = options.deterministic;
  assign.threads = settings.threads;
  assign.max_slots = max_slots;
  assign.spin = settings.spin;
  assign.stage_layers = options.stage_layers;
  assign.tp_split = options.tp_split;
  assign.balance = balance_name(options.balance);
  assign.sums = dtype_name(options.sums);
  assign.role = options.role;
  assign.fabric = options.joining.fabric;
  return assign;
}

// A rank that does not fit the others.
struct Misfit {
  std::int32_t rank = 0;
  Status status;
};

// What must be the same on all ranks is; else the first that differs.
std::optional<Misfit> find_misfit(const RankParts& own, KvDType kv_dtype, bool strict,
                                  const std::vector<wire::Loaded>& loaded) {
  const std::string& fingerprint = own.model->description().fingerprint;
  const auto kv_ids = own.kv_ids(kv_dtype);
  const std::string isa(kernels::isa_name(own.context.isa));
  for (std::size_t rank = 1; rank < loaded.size(); ++rank) {
    const wire::Loaded& theirs = loaded[rank];
    const auto differs = [&](const char* what, const std::string& here, const std::string& there) {
      return Misfit{static_cast<std::int32_t>(rank),
                    Status(ErrorCode::kInvalidArgument,
                           fmt::format("rank {} holds {} {}, rank 0 {}: start all from the same", rank, what,
                                       there, here))};
    };
    if (theirs.fingerprint != fingerprint) return differs("model", fingerprint, theirs.fingerprint);
    if (theirs.kv_ids != kv_ids)
      return differs("KV layout", fmt::format("{}", fmt::join(kv_ids, " ")),
                     fmt::format("{}", fmt::join(theirs.kv_ids, " ")));
    if (theirs.parts.size() != kv_ids.size())
      return differs("KV groups", std::to_string(kv_ids.size()), std::to_string(theirs.parts.size()));
    if (strict && theirs.isa != isa) return differs("instruction set", isa, theirs.isa);
  }
  return std::nullopt;
}

// Pages of every pool, the same on all ranks: on each host, what its ranks hold of a page counts together.
// hosts: by rank.
Expected<std::int64_t> choose_pages(const EngineOptions& options, const RankParts& parts,
                                    const std::vector<wire::Loaded>& others,
                                    const std::vector<std::string>& hosts, std::int32_t context) {
  struct Host {
    std::size_t page_bytes = 0;
    std::size_t available = std::numeric_limits<std::size_t>::max();
    std::size_t mapped_weights = 0;  // which the system counts as available
  };
  std::map<std::string, Host> by_name;
  std::size_t all_pages = 0;
  for (std::size_t rank = 0; rank < std::max<std::size_t>(others.size(), 1); ++rank) {
    const std::size_t page =
        rank == 0 ? parts.page_bytes(options.kv_dtype, options.degrees.cp) : others[rank].page_bytes;
    Host& host = by_name[hosts.empty() ? "" : hosts[rank]];
    host.page_bytes += page;
    // Of several answers of one host the least: it was given when most had loaded.
    host.available =
        std::min(host.available, rank == 0 ? available_memory() : std::size_t{others[rank].available});
    host.mapped_weights +=
        rank == 0 ? parts.model->mapped_weight_bytes() : std::size_t{others[rank].mapped_weights};
    all_pages += page;
  }
  // A full context is spread over the coordinates.
  const std::int32_t cp = options.degrees.cp;
  PoolRequest request{options.kv_pages,
                      options.kv_bytes,
                      all_pages,
                      (kv::pages_for(context) + cp - 1) / cp,
                      options.max_sequences,
                      0};
  if (options.kv_pages != 0 || options.kv_bytes != 0) return pool_pages(request);
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [name, host] : by_name) {
    request.page_bytes = host.page_bytes;
    request.available = host.available - std::min(host.available, host.mapped_weights);
    SHOAL_ASSIGN(pages, pool_pages(request));
    fewest = std::min(fewest, pages);
  }
  return fewest;
}

// Two of a layer's sums over shared memory take some 5 us each; ranks that share a core sleep and wake
// instead.
constexpr double kSumSeconds = 5e-6;
constexpr double kSleepingSumSeconds = 100e-6;

bool sums_leave_hosts(const RankMeeting& meeting) {
  for (std::int32_t rank = 0; rank < meeting.layout.ranks(); ++rank) {
    for (const std::int32_t peer : meeting.layout.group(GroupKind::kAttentionTensor, rank).ranks) {
      if (meeting.hosts[static_cast<std::size_t>(peer)] != meeting.hosts[static_cast<std::size_t>(rank)])
        return true;
    }
  }
  return false;
}

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

}  // namespace

Status Executor::Impl::load(const EngineOptions& options, std::int32_t max_slots, RankParts& parts) {
  SHOAL_ASSIGN(layout, Layout::make(options.degrees));
  settings = settings_of(options, layout);
  kv_dtype = options.kv_dtype;
  strict = options.deterministic;
  faults = options.faults;
  service = options.service;
  word = options.word;
  role = options.role;
  handover = options.handover;
  rank_options.service = service.get();
  rank_options.max_slots = max_slots;
  rank_options.observer = options.logits_observer;
  rank_options.plans_in_flight = layout.plans_in_flight();
  joining = joining_of(options, layout);
  SHOAL_TRY(check_joining(joining, layout));
  SHOAL_TRY(check_sums(options));
  if (layout.ranks() > 1) SHOAL_TRY(start_ranks(options, max_slots));
  SHOAL_TRY(parts.load_weights(settings));
  SHOAL_ASSIGN(context, context_limit(options, parts.model->description()));
  std::vector<wire::Loaded> others;
  if (ranks != nullptr) {
    SHOAL_ASSIGN(all, ranks->await_loaded());
    if (const auto misfit = find_misfit(parts, kv_dtype, strict, all)) return misfit->status;
    others = std::move(all);
  }
  SHOAL_ASSIGN(pages, choose_pages(options, parts, others,
                                   ranks != nullptr ? ranks->hosts() : std::vector<std::string>{}, context));
  loaded.kv_pages = pages;
  SHOAL_TRY(choose_offload(options, parts, others));
  SHOAL_TRY(parts.make_pools(kv_dtype, pages, loaded.offload_places, layout.degrees().cp));
  if (ranks != nullptr) {
    SHOAL_TRY(connect_epoch(parts, others, PlanNumber(1)));
    warn_if_slow(settings, *parts.model);
  } else {
    parts.make_rank(rank_options);
    SHOAL_TRY(begin_service(parts));
  }

  loaded.model = parts.model.get();
  loaded.kv_bytes = parts.store->bytes();
  loaded.kv.views.assign(parts.store->views().begin(), parts.store->views().end());
  loaded.kv.groups = parts.model->kv_groups();
  loaded.kv.ids = parts.kv_ids(kv_dtype);
  loaded.kv.layout = layout;
  loaded.kv.parts.push_back(parts.kv_parts());
  for (std::size_t rank = 1; rank < others.size(); ++rank) loaded.kv.parts.push_back(others[rank].parts);
  loaded.kv.isa = kernels::isa_name(parts.context.isa);
  loaded.kv.strict = strict;
  loaded.ledger = ledger;
  loaded.threads = settings.threads;
  loaded.context =
      static_cast<std::int32_t>(std::min<std::int64_t>(context, pages * layout.degrees().cp * kPageTokens));
  if (loaded.context < context)
    log(LogLevel::kWarn, "kv.small", "pages={} context={} asked={}", pages, loaded.context, context);
  return {};
}

// The same number of places on all ranks, whatever one of them holds of a page.
Status Executor::Impl::choose_offload(const EngineOptions& options, const RankParts& parts,
                                      const std::vector<wire::Loaded>& others) {
  const std::vector<KvGroup>& groups = parts.model->kv_groups();
  loaded.offload_page_bytes.assign(groups.size(), 0);
  loaded.offload_page_bytes_all.assign(groups.size(), 0);
  OffloadRequest request{options.offload_bytes, loaded.kv_pages, 0};
  for (std::size_t rank = 0; rank < std::max<std::size_t>(others.size(), 1); ++rank) {
    const std::vector<KvPart> held = rank == 0 ? parts.kv_parts() : others[rank].parts;
    std::size_t page_bytes = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      KvLayout of_part;
      of_part.layers = held[g].layers;
      of_part.kv_heads = held[g].heads;
      of_part.head_dim = groups[g].head_dim;
      of_part.dtype = kv_dtype;
      const auto bytes = static_cast<std::int64_t>(of_part.page_bytes());
      loaded.offload_page_bytes[g] = std::max(loaded.offload_page_bytes[g], bytes);
      loaded.offload_page_bytes_all[g] += bytes;
      page_bytes += of_part.page_bytes();
    }
    request.page_bytes = std::max(request.page_bytes, page_bytes);
  }
  for (std::int64_t& bytes : loaded.offload_page_bytes_all) bytes /= settings.layout.sub_batches();
  SHOAL_ASSIGN(places, offload_places(request));
  loaded.offload_places = places;
  return {};
}

Status Executor::Impl::start_ranks(const EngineOptions& options, std::int32_t max_slots) {
  // Before there are others: they would have to be ended again.
  SHOAL_TRY(check_layout(settings));
  if (options.launcher == nullptr)
    return {ErrorCode::kInternal, "a layout of several ranks needs somebody who starts them"};
  WorkerRanks::Options ranks_options;
  ranks_options.layout = settings.layout;
  ranks_options.assign = assign_of(options, settings, max_slots);
  ranks_options.build = options.build;
  ranks_options.joining = joining;
  ranks_options.launcher = options.launcher;
  ranks_options.result = [this](StepResult result) { answer(std::move(result)); };
  ranks_options.lost = [this](const Status& status) { lose(status); };
  ranks_options.word = word;
  ranks_options.handover = handover;
  ranks_options.in_vain = [this](const Status& status) { interrupt.trip(status.message()); };
  SHOAL_ASSIGN(started, WorkerRanks::start(std::move(ranks_options)));
  ranks = std::move(started);
  epoch = Epoch(1);
  return ranks->begin_epoch(epoch);
}

// What moves KV to and from other workers.
Status Executor::Impl::begin_service(RankParts& parts) {
  if (service == nullptr) return {};
  RankService::Begin begin = parts.service_begin();
  begin.role = role;
  begin.host = joining.host;
  begin.listen = handover;
  begin.say = [this](std::span<const std::byte> said) -> Status {
    if (word) word(0, said);
    return {};
  };
  return service->begin(std::move(begin));
}

// Where the carriers of the others call this one.
Expected<std::string> Executor::Impl::listen(std::optional<comm::Listener>& listener) const {
  if (!joining.from_elsewhere()) return std::string();
  SHOAL_ASSIGN(opened, comm::Listener::open(joining.listen.host, 0));
  listener.emplace(std::move(opened));
  // They know the host: it is where they have joined.
  return fmt::format(":{}", listener->port());
}

// All have loaded: they get their memory and meet.
Status Executor::Impl::connect_epoch(RankParts& parts, const std::vector<wire::Loaded>& others,
                                     PlanNumber first_plan) {
  wire::Start start;
  start.pages = loaded.kv_pages;
  start.offload_places = loaded.offload_places;
  start.lanes = parts.pool->size();
  for (std::size_t rank = 1; rank < others.size(); ++rank)
    start.lanes = std::min(start.lanes, others[rank].threads);
  if (start.lanes < 1) return {ErrorCode::kCorrupt, "a rank has joined with no threads"};
  start.ring_bytes = ring_bytes_for(settings.layout, parts.model->description().hidden);
  start.first_plan = first_plan;
  SHOAL_ASSIGN(name, comm::ShmHost::draw_name());
  start.meeting = name;
  start.hosts = ranks->hosts();
  std::optional<comm::Listener> listener;
  SHOAL_ASSIGN(endpoint, listen(listener));
  start.endpoints.push_back(endpoint);
  for (std::size_t rank = 1; rank < others.size(); ++rank) start.endpoints.push_back(others[rank].endpoint);

  RankMeeting meeting;
  meeting.layout = settings.layout;
  meeting.epoch = epoch;
  meeting.hosts = start.hosts;
  meeting.name = start.meeting;
  meeting.lanes = start.lanes;
  meeting.ring_bytes = start.ring_bytes;
  meeting.spin = settings.spin;
  meeting.fabric = joining.fabric;
  // Rank 0 is called by all and calls nobody.
  meeting.endpoints.resize(start.hosts.size());
  SHOAL_TRY(ranks->send_start(start));
  if (faults) faults->pass(comm::FaultPoint::kStart, 0);
  auto connected = connect_ranks(meeting, ranks->token(), listener ? &*listener : nullptr, *parts.pool,
                                 interrupt, now() + kMeetingTime);
  if (!connected.ok()) {
    // Where a rank has failed meanwhile, that says why.
    const Status why = ranks->status();
    return why.ok() ? connected.error() : why;
  }
  RankConnection connection = *std::move(connected);
  log(LogLevel::kInfo, "ranks.connected", "epoch={} carrier=\"{}\"", epoch.value, connection.carrier->name());
  if (!meeting.fabric.empty())
    log(LogLevel::kWarn, "ranks.fabric", "interface={} reason=\"{}\"", meeting.fabric,
        meeting.one_host() ? "--fabric has no use: all ranks share this host's memory" : kFabricWarning);
  if (settings.sums != DType::kF32 && !sums_leave_hosts(meeting))
    log(LogLevel::kWarn, "layout.wire",
        "reason=\"--wire {}: no ranks that sum together are on different hosts\"", dtype_name(settings.sums));
  if (faults) faults->pass(comm::FaultPoint::kReady, 0);
  parts.connect(meeting, std::move(connection), faults);
  rank_options.first_plan = first_plan;
  parts.make_rank(rank_options);
  SHOAL_TRY(begin_service(parts));
  return ranks->await_ready();
}

// Until an epoch serves again; false where the worker is stopped first.
bool Executor::Impl::recover(RankParts& parts) {
  PlanNumber first_plan;
  {
    const std::lock_guard lock(mutex);
    first_plan = *std::exchange(resume_at, std::nullopt);
    plans.clear();  // answered when the epoch was lost
  }
  std::chrono::milliseconds wait{0};
  for (;;) {
    if (!pause(wait)) return false;
    wait = std::clamp<std::chrono::milliseconds>(2 * wait, std::chrono::seconds(1), kLongestPause);
    interrupt.release();
    if (service != nullptr) service->end();
    parts.disconnect();
    interrupt.clear();
    {
      const std::lock_guard lock(answering);
      ++epoch.value;
    }
    log(LogLevel::kInfo, "worker.epoch", "epoch={}", epoch.value);
    const auto attempt = [&]() -> Status {
      SHOAL_TRY(ranks->begin_epoch(epoch));
      SHOAL_ASSIGN(others, ranks->await_loaded());
      if (const auto misfit = find_misfit(parts, kv_dtype, strict, others)) {
        // Others that do fit may come.
        ranks->dismiss(misfit->rank, misfit->status.message());
        return misfit->status;
      }
      return connect_epoch(parts, others, first_plan);
    };
    Status status;
    try {
      status = attempt();
    } catch (const std::exception& error) {
      status = Status(ErrorCode::kInternal, fmt::format("beginning the epoch failed: {}", error.what()));
    }
    if (status.ok()) break;
    log(LogLevel::kWarn, "worker.epoch_failed", "epoch={} reason=\"{}\"", epoch.value, status.message());
  }
  {
    const std::lock_guard lock(answering);
    lost.clear();
  }
  log(LogLevel::kInfo, "worker.recovered", "epoch={}", epoch.value);
  callbacks.recovered();
  // Lost again while the last loss was not over: nobody was told.
  if (const Status status = ranks->status(); !status.ok()) lose(status);
  return true;
}

bool Executor::Impl::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex);
  return !wake.wait_for(lock, time, [&] { return stop; });
}

}  // namespace shoal::engine
