#include "engine/rank_carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/mixed_carrier.h"
#include "comm/shm_carrier.h"
#include "comm/tcp_carrier.h"
#include "comm/tcp_mesh.h"
#include "comm/ucx_carrier.h"

namespace shoal::engine {
namespace {

// Between two looks at whether it is still worth waiting.
constexpr std::chrono::milliseconds kSlice{200};
constexpr std::uint64_t kLeastRing = std::uint64_t{1} << 20;
// For a step's rows before they are summed: 1,088 rows of 30,000 values. Sparse, and a larger step's rows are
// summed elsewhere.
constexpr std::uint64_t kArena = std::uint64_t{128} << 20;
// Rows of a step: a whole chunk of prompts and as many sequences as may decode beside it in most steps. A
// larger step only makes its stage wait.
constexpr std::int64_t kRowsOfAStep = 1024 + 64;

const std::string& host_of(const RankMeeting& meeting, std::int32_t rank) {
  return meeting.hosts[static_cast<std::size_t>(rank)];
}

std::int32_t lowest_rank_here(const RankMeeting& meeting) {
  const auto first = std::find(meeting.hosts.begin(), meeting.hosts.end(), host_of(meeting, meeting.rank));
  return static_cast<std::int32_t>(first - meeting.hosts.begin());
}

// The memory of this rank's host, the same on each of its ranks. Ranks of other hosts have their places in
// it, too: what nobody touches costs nothing.
comm::ShmLayout shm_layout_for(const RankMeeting& meeting) {
  const Layout& layout = meeting.layout;
  comm::ShmLayout shm;
  shm.ranks = layout.ranks();
  shm.lanes = meeting.lanes;
  shm.ring_bytes = meeting.ring_bytes;
  const std::int32_t tp = layout.degrees().tp;
  for (std::int32_t rank = 0; tp > 1 && rank < layout.ranks(); rank += tp) {
    const Group group = layout.group(GroupKind::kAttentionTensor, rank);
    const bool here = std::ranges::all_of(group.ranks, [&](std::int32_t each) {
      return host_of(meeting, each) == host_of(meeting, meeting.rank);
    });
    if (here) shm.groups.push_back(group.ranks);
  }
  if (!shm.groups.empty()) shm.arena_bytes = kArena;
  return shm;
}

// The lowest rank may be late, or never come.
Expected<std::shared_ptr<comm::ShmSegment>> attach(const std::string& name, const comm::ShmLayout& layout,
                                                   Interrupt& interrupt, TimePoint deadline) {
  for (;;) {
    auto segment = comm::attach_segment(name, layout, std::min(deadline, now() + kSlice));
    if (segment.ok() || interrupt.tripped() || now() >= deadline) return segment;
    // Nobody listens yet, or the one who does has not had its turn within the slice.
    const ErrorCode code = segment.error().code();
    if (code != ErrorCode::kUnavailable && code != ErrorCode::kDeadline) return segment;
  }
}

Expected<RankConnection> share_memory(const RankMeeting& meeting, const comm::ShmLayout& layout,
                                      ThreadPool& pool, Interrupt& interrupt, TimePoint deadline) {
  RankConnection connection;
  const std::int32_t lowest = lowest_rank_here(meeting);
  const std::string name = fmt::format("{}-{}", meeting.name, lowest);
  std::shared_ptr<comm::ShmSegment> segment;
  if (meeting.rank == lowest) {
    SHOAL_ASSIGN(made, comm::ShmSegment::create(layout));
    segment = std::move(made);
    SHOAL_ASSIGN(host, comm::ShmHost::open(segment, name));
    connection.host = std::move(host);
  } else {
    SHOAL_ASSIGN(attached, attach(name, layout, interrupt, deadline));
    segment = std::move(attached);
  }
  comm::ShmCarrier::Options options;
  // With a core for each nobody else wants it, and who sleeps is some 100 us late at every sum of a chunk:
  // 40,000 pauses are about 2 ms, by which ranks of unlike cores drift apart in a layer of 512 rows.
  options.patience.pauses = meeting.spin ? 40'000 : 0;
  options.pool = layout.lanes > 1 ? &pool : nullptr;
  connection.carrier = std::make_unique<comm::ShmCarrier>(std::move(segment), meeting.rank, options);
  return connection;
}

// The mesh of all ranks, which ends early where `interrupt` is tripped.
Expected<std::vector<comm::Socket>> call_and_answer(const RankMeeting& meeting,
                                                    const wire::ClusterToken& token, comm::Listener& listener,
                                                    Interrupt& interrupt, TimePoint deadline) {
  // Also where it ends by an exception: the listener goes next.
  struct Release {
    Interrupt& interrupt;
    ~Release() { interrupt.release(); }
  } const release{interrupt};
  interrupt.watch(listener);
  return comm::connect_mesh(meeting.rank, meeting.endpoints, listener, token, meeting.epoch, deadline,
                            [&](const comm::Socket* call) { interrupt.watch_call(call); });
}

Expected<std::unique_ptr<comm::Carrier>> to_other_hosts(const RankMeeting& meeting,
                                                        std::vector<comm::Socket> mesh, Interrupt& interrupt,
                                                        TimePoint deadline) {
  if (meeting.fabric.empty()) {
    comm::TcpCarrier::Options options;
    if (!meeting.spin) options.looks = 0;
    return std::unique_ptr<comm::Carrier>(
        std::make_unique<comm::TcpCarrier>(meeting.rank, std::move(mesh), options));
  }
  comm::UcxCarrier::Options options{meeting.fabric};
  if (!meeting.spin) options.looks = 0;
  options.stop = [&] { return interrupt.tripped(); };
  SHOAL_ASSIGN(ucx, comm::UcxCarrier::connect(meeting.rank, std::move(mesh), std::move(options), deadline));
  return std::unique_ptr<comm::Carrier>(std::move(ucx));
}

}  // namespace

std::uint64_t ring_bytes_for(const Layout& layout, std::int64_t hidden) {
  if (layout.degrees().pp == 1) return kLeastRing;
  const auto step = static_cast<std::uint64_t>(kRowsOfAStep * hidden) * sizeof(float);
  return std::max<std::uint64_t>(kLeastRing, comm::ShmLayout::round_up(step, comm::kShmPage));
}

bool RankMeeting::one_host() const {
  return std::ranges::all_of(hosts, [&](const std::string& host) { return host == hosts.front(); });
}

std::vector<comm::Scope> RankMeeting::scopes() const {
  std::vector<comm::Scope> scopes;
  for (const std::string& host : hosts)
    scopes.push_back(host == host_of(*this, rank) ? comm::Scope::kHost : comm::Scope::kNetwork);
  return scopes;
}

std::vector<std::int32_t> RankMeeting::host_numbers() const {
  std::vector<std::int32_t> numbers;
  for (const std::string& host : hosts)
    numbers.push_back(static_cast<std::int32_t>(std::ranges::find(hosts, host) - hosts.begin()));
  return numbers;
}

Expected<RankConnection> connect_ranks(const RankMeeting& meeting, const wire::ClusterToken& token,
                                       comm::Listener* listener, ThreadPool& pool, Interrupt& interrupt,
                                       TimePoint deadline) {
  const comm::ShmLayout layout = shm_layout_for(meeting);
  if (meeting.one_host()) {
    SHOAL_ASSIGN(connection, share_memory(meeting, layout, pool, interrupt, deadline));
    interrupt.watch(*connection.carrier);
    return std::move(connection);
  }
  if (listener == nullptr)
    return Status(ErrorCode::kCorrupt, "ranks are on several hosts and this one listens to none");
  SHOAL_ASSIGN(sockets, call_and_answer(meeting, token, *listener, interrupt, deadline));
  RankConnection connection;
  SHOAL_ASSIGN(network, to_other_hosts(meeting, std::move(sockets), interrupt, deadline));
  connection.carrier = std::move(network);
  if (std::ranges::count(meeting.hosts, host_of(meeting, meeting.rank)) > 1) {
    SHOAL_ASSIGN(shared, share_memory(meeting, layout, pool, interrupt, deadline));
    connection.host = std::move(shared.host);
    std::vector<bool> near;
    for (const std::string& host : meeting.hosts) near.push_back(host == host_of(meeting, meeting.rank));
    connection.carrier = std::make_unique<comm::MixedCarrier>(std::move(connection.carrier),
                                                              std::move(shared.carrier), std::move(near));
  }
  interrupt.watch(*connection.carrier);
  return connection;
}

}  // namespace shoal::engine
