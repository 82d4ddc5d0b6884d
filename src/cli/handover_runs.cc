#include "cli/handover_runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "cli/plain_stream.h"
#include "cli/rank_launcher.h"
#include "comm/pulsed_link.h"
#include "core/clock.h"
#include "kernels/sampling_math.h"
#include "kv/page_table.h"

namespace shoal::cli {
namespace {

constexpr std::chrono::minutes kPatience{30};

// When the tokens of one request came. Its sink shares it: whoever gives up waiting leaves it to the engine.
class TokenTimes : public std::enable_shared_from_this<TokenTimes> {
 public:
  engine::OutputSink sink() {
    return [self = shared_from_this()](engine::OutputEvent&& event) {
      const std::lock_guard lock(self->mutex_);
      self->times_.insert(self->times_.end(), event.tokens.size(), now());
      if (!event.last) return;
      self->error_ = event.error;
      self->ended_ = true;
      self->changed_.notify_all();
    };
  }
  Status wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return ended_; }))
      return {ErrorCode::kDeadline, "the engine has not answered within half an hour"};
    return error_;
  }
  // Once it has ended.
  RequestTimes since(TimePoint begin) const {
    RequestTimes times;
    if (times_.empty()) return times;
    times.first_token = seconds_between(begin, times_.front());
    for (std::size_t i = 1; i < times_.size(); ++i) {
      const double gap = seconds_between(times_[i - 1], times_[i]);
      if (i == 1) {
        times.second_gap = gap;
      } else {
        times.gaps.push_back(gap);
      }
    }
    return times;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TimePoint> times_;
  bool ended_ = false;
  Status error_;
};

// utime and stime: fields 14 and 15, counted after the name, which may hold blanks.
double cpu_seconds_of(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  if (fields.size() < 13) return 0;
  return (std::stod(fields[11]) + std::stod(fields[12])) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

comm::Charge kv_charges(const engine::Engine& engine) {
  comm::Charge all = engine.ledger().totals(comm::Purpose::kKv);
  // Of the others, as they tell it; the first rank's is the engine's own.
  const engine::WorkerReport report = engine.worker();
  for (std::size_t rank = 1; rank < report.ranks.size(); ++rank) {
    const comm::Charge& charge = report.ranks[rank].traffic[static_cast<std::size_t>(comm::Purpose::kKv)];
    all.payload += charge.payload;
    all.hidden += charge.hidden;
    all.exposed = std::max(all.exposed, charge.exposed);
  }
  return all;
}

}  // namespace

Expected<std::unique_ptr<HandoverRuns>> HandoverRuns::start(const Options& options) {
  std::unique_ptr<HandoverRuns> runs(new HandoverRuns(options));
  SHOAL_TRY(runs->open());
  return runs;
}

HandoverRuns::~HandoverRuns() {
  receiver_.reset();
  sender_.reset();
}

Status HandoverRuns::open() {
  SHOAL_ASSIGN(drawn, wire::ClusterToken::draw());
  const auto token = std::make_shared<const wire::ClusterToken>(drawn);
  const auto sends_from = std::make_shared<handover::RankPorts>(token);
  const auto lands_at = std::make_shared<handover::RankPorts>(token);
  SHOAL_ASSIGN(prefill, start_engine(options_.prefill, *sends_from, "prefill"));
  prefill_ = std::move(prefill);
  SHOAL_ASSIGN(decode, start_engine(options_.decode, *lands_at, "decode"));
  decode_ = std::move(decode);
  if (options_.prompt + options_.generate > prefill_->context())
    return {ErrorCode::kInvalidArgument,
            fmt::format("--prompt {} and --generate {} are more than the {} tokens that the model takes",
                        options_.prompt, options_.generate, prefill_->context()),
            "--prompt"};
  handover::Sender::Options sends;
  sends.build = SHOAL_VERSION;
  sends.checksums = options_.checksums;
  SHOAL_ASSIGN(sender, handover::Sender::start(*prefill_, sends_from, std::move(sends)));
  sender_ = std::move(sender);
  handover::BootstrapPort::Options answers;
  answers.port = 0;
  answers.layout = prefill_->kv_pools().layout;
  answers.endpoint = [sends_from](std::int32_t rank) { return sends_from->endpoint(rank); };
  SHOAL_ASSIGN(bootstrap, handover::BootstrapPort::start(std::move(answers)));
  bootstrap_ = std::move(bootstrap);
  receiver_ = std::make_unique<handover::Receiver>(
      *decode_, lands_at, handover::Receiver::Options{SHOAL_VERSION, options_.checksums, options_.by_memory});
  return {};
}

Expected<std::unique_ptr<engine::Engine>> HandoverRuns::start_engine(const Degrees& degrees,
                                                                     handover::RankPorts& ports,
                                                                     const std::string& role) const {
  engine::EngineOptions options;
  options_.model.apply_to(options);
  options.kv_pages = kv::pages_for(std::int64_t{options_.prompt} + options_.generate) + 2;
  options.max_sequences = 1;
  options.prefill_chunk = options_.chunk;
  options.degrees = degrees;
  options.build = SHOAL_VERSION;
  options.joining.token = ports.token();
  options.launcher = std::make_shared<ProcessLauncher>("warn");
  ports.equip(options, role, {"127.0.0.1", 0});
  return engine::Engine::start(std::move(options));
}

engine::GenerateRequest HandoverRuns::request() const {
  engine::GenerateRequest request;
  const auto vocabulary = static_cast<std::uint64_t>(prefill_->description().vocabulary);
  for (std::int32_t i = 0; i < options_.prompt; ++i)
    request.prompt.push_back(
        static_cast<TokenId>(kernels::noise_bits(1, 0, static_cast<std::uint64_t>(i), 0) % vocabulary));
  request.max_tokens = options_.generate;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  return request;
}

// Of this process and of the ranks that have one of their own.
double HandoverRuns::cpu_seconds() const {
  double seconds = process_cpu_seconds();
  for (const engine::Engine* engine : {prefill_.get(), decode_.get()}) {
    for (const engine::RankReport& rank : engine->worker().ranks) {
      if (rank.pid != ::getpid()) seconds += cpu_seconds_of(rank.pid);
    }
  }
  return seconds;
}

Expected<RequestTimes> HandoverRuns::alone() {
  SHOAL_TRY(prefill_->flush_cache());
  const auto tokens = std::make_shared<TokenTimes>();
  const double cpu = cpu_seconds();
  const TimePoint begin = now();
  SHOAL_TRY(prefill_->submit(request(), tokens->sink()).status());
  SHOAL_TRY(tokens->wait());
  RequestTimes times = tokens->since(begin);
  times.cpu = cpu_seconds() - cpu;
  return times;
}

Expected<RequestTimes> HandoverRuns::together(Warm warm) {
  if (!warm.prefill) SHOAL_TRY(prefill_->flush_cache());
  if (!warm.decode) SHOAL_TRY(decode_->flush_cache());
  engine::GenerateRequest departing = request();
  engine::GenerateRequest arriving = departing;
  const handover::RoomId room = next_room_++;
  SHOAL_ASSIGN(departure, sender_->depart(room, departing.prompt));
  SHOAL_ASSIGN(arrival, receiver_->arrive(room, {"127.0.0.1", bootstrap_->port()}));
  departing.departures.push_back(std::move(departure));
  arriving.arrivals.push_back(std::move(arrival));
  const comm::Charge before = kv_charges(*prefill_);
  const double read_before = kv_charges(*decode_).hidden;
  const auto first = std::make_shared<TokenTimes>();
  const auto answer = std::make_shared<TokenTimes>();
  const double cpu = cpu_seconds();
  const TimePoint begin = now();
  const auto sent = prefill_->submit(std::move(departing), first->sink());
  if (!sent.ok()) return sent.error();
  if (const auto asked = decode_->submit(std::move(arriving), answer->sink()); !asked.ok()) {
    prefill_->cancel(*sent);
    return asked.error();
  }
  SHOAL_TRY(answer->wait());
  SHOAL_TRY(first->wait());
  RequestTimes times = answer->since(begin);
  times.cpu = cpu_seconds() - cpu;
  const comm::Charge after = settled_charges(before.payload, !warm.decode);
  times.bytes = after.payload - before.payload;
  times.exposed = after.exposed - before.exposed;
  // Where decode reads the pages itself, it spends the time of moving them.
  const double read = kv_charges(*decode_).hidden - read_before;
  times.moving = read > 0 ? read : times.exposed + after.hidden - before.hidden;
  return times;
}

// Once what has moved is in the ledgers: a rank writes it down when the other side has everything, and those
// in processes of their own tell it with their beats.
comm::Charge HandoverRuns::settled_charges(std::uint64_t before, bool moves) const {
  const TimePoint deadline = now() + std::chrono::seconds(3);
  comm::Charge charge = kv_charges(*prefill_);
  while (moves && charge.payload == before && now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    charge = kv_charges(*prefill_);
  }
  if (prefill_->worker().ranks.size() > 1 || decode_->worker().ranks.size() > 1)
    std::this_thread::sleep_for(2 * comm::kBeat);
  return kv_charges(*prefill_);
}

std::uint64_t HandoverRuns::prompt_bytes() const {
  const engine::KvPools& pools = decode_->kv_pools();
  std::uint64_t page = 0;
  for (std::int32_t rank = 0; rank < pools.layout.ranks(); ++rank) {
    if (pools.layout.coordinate(rank).cp != 0) continue;
    const auto& parts = pools.parts[static_cast<std::size_t>(rank)];
    for (std::size_t g = 0; g < parts.size(); ++g)
      page += 2 * pools.views[g].layout.tile_bytes() * static_cast<std::uint64_t>(parts[g].layers) *
              static_cast<std::uint64_t>(parts[g].heads);
  }
  return page * static_cast<std::uint64_t>(kv::pages_for(options_.prompt));
}

}  // namespace shoal::cli
