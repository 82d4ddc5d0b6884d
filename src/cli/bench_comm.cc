#include "cli/bench_comm.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "cli/comm_topology.h"
#include "comm/collectives.h"
#include "comm/shm_carrier.h"
#include "comm/shm_meeting.h"
#include "comm/tcp_carrier.h"
#include "comm/tcp_mesh.h"
#include "comm/ucx_carrier.h"

namespace shoal::cli {
namespace {

using comm::Purpose;
using nlohmann::ordered_json;

struct CommFlags {
  std::int32_t ranks = 2;
  std::vector<std::string> carriers = {"shm", "tcp"};
  std::vector<std::string> collectives = {"all_reduce"};
  std::vector<std::uint64_t> sizes = {8192, 32768, std::uint64_t{1} << 20, std::uint64_t{16} << 20};
  std::int32_t repeat = 5;
  double seconds = 0.2;
  bool json = false;
  std::string svg;
  std::string fabric = "lo";
};

// What the ranks share before they part.
struct Meeting {
  std::shared_ptr<comm::ShmSegment> segment;
  std::vector<comm::Listener> listeners;
  std::vector<comm::Endpoint> endpoints;
  std::optional<wire::ClusterToken> token;
};

Group everyone(std::int32_t ranks, std::int32_t index) {
  Group group;
  for (std::int32_t rank = 0; rank < ranks; ++rank) group.ranks.push_back(rank);
  group.index = index;
  return group;
}

Expected<Meeting> prepare(const CommFlags& flags) {
  Meeting meeting;
  comm::ShmLayout layout;
  layout.ranks = flags.ranks;
  layout.groups = {everyone(flags.ranks, 0).ranks};
  layout.arena_bytes =
      comm::ShmLayout::round_up(*std::max_element(flags.sizes.begin(), flags.sizes.end()), comm::kShmPage);
  SHOAL_ASSIGN(segment, comm::ShmSegment::create(layout));
  meeting.segment = segment;
  for (std::int32_t rank = 0; rank < flags.ranks; ++rank) {
    SHOAL_ASSIGN(listener, comm::Listener::open("127.0.0.1", 0));
    meeting.endpoints.push_back({"127.0.0.1", listener.port()});
    meeting.listeners.push_back(std::move(listener));
  }
  SHOAL_ASSIGN(token, wire::ClusterToken::draw());
  meeting.token = token;
  return meeting;
}

Expected<std::unique_ptr<comm::Carrier>> carrier_of(const std::string& kind, const CommFlags& flags,
                                                    Meeting& meeting, std::int32_t rank, bool spin) {
  std::unique_ptr<comm::Carrier> carrier;
  if (kind == "shm") {
    comm::ShmCarrier::Options options;
    if (!spin) options.patience.pauses = 0;
    carrier = std::make_unique<comm::ShmCarrier>(meeting.segment, rank, options);
  } else {
    const TimePoint deadline = now() + std::chrono::seconds(20);
    SHOAL_ASSIGN(sockets, comm::connect_mesh(rank, meeting.endpoints,
                                             meeting.listeners[static_cast<std::size_t>(rank)],
                                             *meeting.token, Epoch(1), deadline));
    if (kind == "ucx") {
      comm::UcxCarrier::Options options{flags.fabric};
      if (!spin) options.looks = 0;
      SHOAL_ASSIGN(ucx, comm::UcxCarrier::connect(rank, std::move(sockets), options, deadline));
      carrier = std::move(ucx);
      return carrier;
    }
    comm::TcpCarrier::Options options;
    if (!spin) options.looks = 0;
    carrier = std::make_unique<comm::TcpCarrier>(rank, std::move(sockets), options);
  }
  return carrier;
}

// One call of a collective on buffers of `bytes` in all. Values lie where a layer's do: in the rank's arena,
// where the carrier has one.
class Exercise {
 public:
  Exercise(const std::string& name, std::uint64_t bytes, std::span<std::byte> arena, comm::Collectives& group)
      : name_(name), group_(group) {
    const std::size_t n = static_cast<std::size_t>(bytes) / sizeof(float);
    if (arena.size() >= n * sizeof(float)) {
      values_ = {reinterpret_cast<float*>(arena.data()), n};
    } else {
      own_values_.resize(n);
      values_ = own_values_;
    }
    const auto ranks = static_cast<std::size_t>(group.group().size());
    const std::size_t part = values_.size() / ranks;
    counts_.assign(ranks, static_cast<std::int64_t>(part));
    results_.resize(values_.size());
    for (std::size_t i = 0; i < ranks; ++i) {
      out_.push_back(std::as_bytes(values_.subspan(i * part, part)));
      in_.push_back(std::as_writable_bytes(std::span(results_).subspan(i * part, part)));
    }
  }

  // As whoever computed the values would have left them: written by this rank, all ranks ready.
  Status prepare() {
    std::fill(values_.begin(), values_.end(), 1.0F);
    float nothing = 0;
    return group_.all_reduce(Purpose::kPlan, std::span(&nothing, 1));
  }

  Status run() {
    const auto own = static_cast<std::size_t>(group_.group().index);
    if (name_ == "all_reduce") return group_.all_reduce(Purpose::kTp, values_);
    if (name_ == "all_gather") return group_.all_gather(Purpose::kTp, out_[own], in_);
    if (name_ == "all_to_all") return group_.all_to_all(Purpose::kEp, out_, in_);
    if (name_ == "broadcast") return group_.broadcast(Purpose::kPlan, 0, std::as_writable_bytes(values_));
    if (name_ == "reduce_scatter")
      return group_.reduce_scatter(Purpose::kTp, counts_,
                                   values_.first(static_cast<std::size_t>(counts_[0]) * counts_.size()),
                                   std::span(results_).first(static_cast<std::size_t>(counts_[0])));
    return ping_pong();
  }

 private:
  // There and back between the first two; half of it is one way.
  Status ping_pong() {
    const auto bytes = std::as_writable_bytes(values_);
    if (group_.group().index == 0) {
      SHOAL_TRY(group_.send(Purpose::kPp, 1, bytes));
      return group_.receive(Purpose::kPp, 1, bytes);
    }
    if (group_.group().index != 1) return {};
    SHOAL_TRY(group_.receive(Purpose::kPp, 0, bytes));
    return group_.send(Purpose::kPp, 0, bytes);
  }

  std::string name_;
  comm::Collectives& group_;
  std::vector<float> own_values_;
  std::span<float> values_;
  std::vector<float> results_;
  std::vector<std::int64_t> counts_;
  std::vector<std::span<const std::byte>> out_;
  std::vector<std::span<std::byte>> in_;
};

struct Timing {
  double median = 0, p90 = 0, p99 = 0;  // seconds
};

// Every rank runs as often as rank 0 finds right.
Expected<Timing> time_exercise(Exercise& exercise, comm::Collectives& group, double seconds) {
  TimePoint begin = now();
  for (int i = 0; i < 5; ++i) {
    SHOAL_TRY(exercise.prepare());
    SHOAL_TRY(exercise.run());
  }
  const double once = seconds_between(begin, now()) / 5;
  auto rounds = static_cast<std::int32_t>(std::clamp(seconds / std::max(once, 1e-7), 10.0, 20000.0));
  SHOAL_TRY(group.broadcast(Purpose::kPlan, 0, std::as_writable_bytes(std::span(&rounds, 1))));
  std::vector<double> times;
  for (std::int32_t i = 0; i < rounds; ++i) {
    SHOAL_TRY(exercise.prepare());
    begin = now();
    SHOAL_TRY(exercise.run());
    times.push_back(seconds_between(begin, now()));
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  return Timing{at(0.5), at(0.9), at(0.99)};
}

// All cases on one rank. found(carrier, collective, bytes, timing) on rank 0 is what counts.
template <typename F>
Expected<CommTopology> run_rank(const CommFlags& flags, Meeting& meeting, std::int32_t rank, F&& found) {
  const bool spin = usable_cores() >= flags.ranks;
  CommTopology topology;
  for (const std::string& kind : flags.carriers) {
    SHOAL_ASSIGN(carrier, carrier_of(kind, flags, meeting, rank, spin));
    comm::Ledger ledger;
    comm::Collectives group(*carrier, everyone(flags.ranks, rank), ledger, {});
    SHOAL_ASSIGN(hosts, gather_hosts(group, comm::host_identity()));
    topology.hosts = std::move(hosts);
    SHOAL_ASSIGN(links, measure_links(kind, group));
    topology.links.insert(topology.links.end(), links.begin(), links.end());
    for (std::int32_t round = 0; round < flags.repeat; ++round) {
      for (const std::string& collective : flags.collectives) {
        for (const std::uint64_t bytes : flags.sizes) {
          Exercise exercise(collective, bytes, carrier->arena(), group);
          SHOAL_ASSIGN(timing, time_exercise(exercise, group, flags.seconds));
          if (collective == "send") timing = {timing.median / 2, timing.p90 / 2, timing.p99 / 2};
          found(kind, collective, bytes, timing);
        }
      }
    }
  }
  return topology;
}

struct Row {
  std::string carrier, collective;
  std::uint64_t bytes = 0;
  std::vector<Timing> runs;

  double median() const {
    std::vector<double> medians;
    for (const Timing& run : runs) medians.push_back(run.median);
    std::nth_element(medians.begin(), medians.begin() + static_cast<std::ptrdiff_t>(medians.size() / 2),
                     medians.end());
    return medians[medians.size() / 2];
  }
};

void print_text(const std::vector<Row>& rows) {
  fmt::print("{:8} {:15} {:>10} {:>10} {:>10} {:>10} {:>8}\n", "carrier", "collective", "bytes", "us",
             "p90 us", "p99 us", "GB/s");
  for (const Row& row : rows) {
    double p90 = 0, p99 = 0;
    for (const Timing& run : row.runs) {
      p90 = std::max(p90, run.p90);
      p99 = std::max(p99, run.p99);
    }
    fmt::print("{:8} {:15} {:>10} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.2f}\n", row.carrier, row.collective,
               row.bytes, row.median() * 1e6, p90 * 1e6, p99 * 1e6,
               static_cast<double>(row.bytes) / row.median() / 1e9);
  }
}

void print_json(const CommFlags& flags, const std::vector<Row>& rows, const CommTopology& topology) {
  ordered_json report;
  report["bench"] = "comm";
  report["machine"] = {{"cores", usable_cores()}};
  report["params"] = {{"ranks", flags.ranks}, {"repeat", flags.repeat}, {"seconds", flags.seconds}};
  report["runs"] = ordered_json::array();
  for (const Row& row : rows) {
    ordered_json runs = ordered_json::array();
    for (const Timing& run : row.runs)
      runs.push_back({{"us", run.median * 1e6}, {"p90_us", run.p90 * 1e6}, {"p99_us", run.p99 * 1e6}});
    report["runs"].push_back({{"carrier", row.carrier},
                              {"collective", row.collective},
                              {"bytes", row.bytes},
                              {"median_us", row.median() * 1e6},
                              {"runs", std::move(runs)}});
  }
  report["topology"] = {{"hosts", topology.hosts}, {"links", ordered_json::array()}};
  for (const CommLink& link : topology.links)
    report["topology"]["links"].push_back({{"carrier", link.carrier},
                                           {"from", link.from},
                                           {"to", link.to},
                                           {"us", link.microseconds},
                                           {"gb_per_s", link.gb_per_s}});
  std::cout << report.dump(2) << '\n';
}

int run_bench_comm(const CommFlags& flags) {
  auto meeting = prepare(flags);
  if (!meeting.ok()) return complain("bench comm", meeting.error());
  std::vector<pid_t> children;
  for (std::int32_t rank = 1; rank < flags.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const auto result = run_rank(flags, *meeting, rank, [](auto&&...) {});
      // Not through destructors: what was copied from the parent is the parent's.
      ::_exit(result.ok() ? 0 : 1);
    }
    if (pid > 0) children.push_back(pid);
  }
  std::vector<Row> rows;
  Status status = static_cast<std::int32_t>(children.size()) + 1 == flags.ranks
                      ? Status()
                      : Status(ErrorCode::kExhausted, "the ranks cannot be forked");
  CommTopology topology;
  if (status.ok()) {
    auto measured =
        run_rank(flags, *meeting, 0,
                 [&](const std::string& carrier, const std::string& collective, std::uint64_t bytes,
                     const Timing& timing) {
                   const auto same = [&](const Row& row) {
                     return row.carrier == carrier && row.collective == collective && row.bytes == bytes;
                   };
                   auto at = std::find_if(rows.begin(), rows.end(), same);
                   if (at == rows.end()) at = rows.insert(rows.end(), {carrier, collective, bytes, {}});
                   at->runs.push_back(timing);
                 });
    if (measured.ok()) {
      topology = *std::move(measured);
    } else {
      status = measured.error();
    }
  }
  for (const pid_t pid : children) {
    if (!status.ok()) ::kill(pid, SIGKILL);
    int ended = 0;
    ::waitpid(pid, &ended, 0);
  }
  if (!status.ok()) return complain("bench comm", status);
  if (flags.json) {
    print_json(flags, rows, topology);
  } else {
    fmt::print("{}\n", topology_table(topology));
    print_text(rows);
  }
  if (flags.svg.empty()) return 0;
  std::ofstream file(flags.svg);
  file << topology_svg(topology) << std::flush;
  if (file) return 0;
  return complain("bench comm", {ErrorCode::kIo, fmt::format("{} cannot be written", flags.svg)});
}

}  // namespace

void add_bench_comm(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<CommFlags>();
  CLI::App* command = bench.add_subcommand("comm", "Latency and bandwidth between ranks on this machine");
  command->add_option("--ranks", flags->ranks, "Processes, one thread each")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  command->add_option("--carriers", flags->carriers, "shm, tcp, ucx (where this build has it)")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"shm", "tcp", "ucx"}));
  command->add_option("--fabric", flags->fabric, "Interface that ucx uses: lo, eth1, mlx5_0:1")
      ->capture_default_str();
  command
      ->add_option("--collectives", flags->collectives,
                   "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send")
      ->delimiter(',')
      ->capture_default_str()
      ->check(
          CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"}));
  command->add_option("--sizes", flags->sizes, "Bytes of the whole, also 8KiB, 1MiB")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{4}, std::uint64_t{1} << 30));
  command->add_option("--repeat", flags->repeat, "Rounds over all cases; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--seconds", flags->seconds, "For each case and round")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 60.0));
  command->add_option("--svg", flags->svg, "Draws who is near whom into this file");
  command->add_flag("--json", flags->json, "A report for scripts");
  command->callback([flags, &exit_code] { exit_code = run_bench_comm(*flags); });
}

}  // namespace shoal::cli
