#include "cli/fake_worker.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "cli/fake_worker_server.h"
#include "cli/file_limit.h"
#include "cli/milliseconds.h"
#include "cli/real_range.h"
#include "cli/stop_signals.h"
#include "cli/token_file.h"
#include "core/log.h"
#include "wire/event_loop.h"
#include "wire/http_client.h"
#include "wire/registration_key.h"

namespace shoal::cli {
namespace {

struct FakeFlags {
  std::string ports;
  std::vector<std::string> gateways;
  std::string token_file;
  std::string harm = "none";
  std::string log_level = "warn";
  double drain_seconds = 5;
  FakeWorkerOptions worker;
};

const std::map<std::string, FakeHarm> kHarms = {{"none", FakeHarm::kNone},
                                                {"stall", FakeHarm::kStall},
                                                {"cut", FakeHarm::kCut},
                                                {"garbage", FakeHarm::kGarbage},
                                                {"repeat-usage", FakeHarm::kRepeatUsage},
                                                {"lie-idle", FakeHarm::kLieIdle},
                                                {"refuse", FakeHarm::kRefuse}};

// "8001", "8001-9000", or "0x1000": a thousand free ones.
bool parse_ports(const std::string& text, std::vector<std::uint16_t>& ports) {
  unsigned first = 0, last = 0;
  char rest = 0;
  int found = std::sscanf(text.c_str(), "%u-%u%c", &first, &last, &rest);
  if (found == 1 && text.find_first_not_of("0123456789") == std::string::npos) last = first;
  unsigned count = 0;
  if (found == 1 && std::sscanf(text.c_str(), "0x%u%c", &count, &rest) == 1 && text.starts_with("0x")) {
    ports.assign(count, 0);
    return count >= 1 && count <= 60'000;
  }
  if (found != 2 && !(found == 1 && last == first)) return false;
  if (first < 1 || last < first || last > 65'535) return false;
  for (unsigned port = first; port <= last; ++port) ports.push_back(static_cast<std::uint16_t>(port));
  return true;
}

// All workers of the process, on one loop.
class Fleet {
 public:
  explicit Fleet(const FakeFlags& flags)
      : flags_(flags), client_({.tls = nullptr, .loop = &loop_, .max_idle = 64}) {}
  // Servers first, then what their handlers use; the loop last.
  ~Fleet() {
    for (const auto& worker : workers_) worker->shutdown(std::chrono::milliseconds(0));
    loop_.call([this] { registrations_.clear(); });
    loop_.stop();
  }

  Status start(const std::vector<std::uint16_t>& ports) {
    for (const std::uint16_t port : ports) {
      workers_.push_back(std::make_unique<FakeWorkerServer>(loop_, client_, flags_.worker));
      SHOAL_ASSIGN(bound, workers_.back()->listen(port));
      bound_.push_back(bound);
    }
    return {};
  }

  Status register_all() {
    serving::RegistrationOptions options;
    for (const std::string& text : flags_.gateways) {
      SHOAL_ASSIGN(url, wire::Url::parse(text));
      options.gateways.push_back(url);
    }
    if (options.gateways.empty()) return {};
    SHOAL_ASSIGN(token, load_token(flags_.token_file));
    options.key = wire::registration_key(token);
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      options.url = fmt::format("http://{}:{}", flags_.worker.host, bound_[i]);
      options.offset = std::chrono::milliseconds(500 * i / workers_.size());
      loop_.call([&] {
        registrations_.push_back(std::make_unique<serving::GatewayRegistration>(
            loop_, client_, options, [worker = workers_[i].get()] { return worker->report(); }));
        registrations_.back()->start();
      });
    }
    return {};
  }

  // Tells everybody, lets what runs finish.
  bool drain(std::chrono::milliseconds patience) {
    loop_.call([this] {
      for (const auto& worker : workers_) worker->drain();
      for (const auto& registration : registrations_) registration->tell();
    });
    bool clean = true;
    const TimePoint end = now() + patience;
    for (const auto& worker : workers_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - now());
      clean &= worker->shutdown(std::max(left, std::chrono::milliseconds(0)));
    }
    return clean;
  }

  const std::vector<std::uint16_t>& ports() const { return bound_; }

 private:
  const FakeFlags& flags_;
  wire::EventLoop loop_;
  wire::HttpClient client_;
  std::vector<std::unique_ptr<FakeWorkerServer>> workers_;
  std::vector<std::uint16_t> bound_;
  std::vector<std::unique_ptr<serving::GatewayRegistration>> registrations_;
};

int run_fake(const FakeFlags& flags) {
  const StopSignals stop({SIGTERM, SIGINT});
  raise_file_limit();
  std::vector<std::uint16_t> ports;
  if (!parse_ports(flags.ports, ports))
    return complain("fake-worker",
                    {ErrorCode::kInvalidArgument, "--ports takes N, FIRST-LAST, or 0xCOUNT for free ones"},
                    2);
  Fleet fleet(flags);
  if (const Status status = fleet.start(ports); !status.ok()) return complain("fake-worker", status);
  if (const Status status = fleet.register_all(); !status.ok()) return complain("fake-worker", status);
  if (ports.front() == 0) {
    for (const std::uint16_t port : fleet.ports()) fmt::print("{}\n", port);
  }
  fmt::print("listening on http://{}:{}\n", flags.worker.host, fleet.ports().front());
  std::fflush(stdout);
  int signal = 0;
  while (signal == 0) signal = stop.wait(std::chrono::hours(1));
  fleet.drain(milliseconds_of(flags.drain_seconds));
  return 0;
}

}  // namespace

void add_fake_worker(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<FakeFlags>();
  FakeEngineOptions& engine = flags->worker.engine;
  CLI::App* fake =
      app.add_subcommand("fake-worker", "Workers without a model, with the time that one would take");
  fake->add_option("--ports", flags->ports,
                   "N, FIRST-LAST, or 0xCOUNT for so many free ones; a worker on each")
      ->required();
  fake->add_option("--host", flags->worker.host, "Address to listen on")->capture_default_str();
  fake->add_option("--role", flags->worker.role,
                   "both, or its part of the answers that two workers share: prefill or decode")
      ->capture_default_str()
      ->check(CLI::IsMember({"both", "prefill", "decode"}));
  fake->add_option("--model", flags->worker.model, "What clients call the model")->capture_default_str();
  fake->add_option("--prefill-tok-s", engine.prefill_tokens_per_s, "Tokens of prompts a second")
      ->capture_default_str()
      ->check(real_range(1.0, 1e12));
  fake->add_option("--decode-ms", engine.decode_ms, "Milliseconds of a step")
      ->capture_default_str()
      ->check(real_range(0.0, 1e6));
  fake->add_option("--decode-row-us", engine.decode_row_us, "Microseconds more for each sequence in a step")
      ->capture_default_str()
      ->check(real_range(0.0, 1e6));
  fake->add_option("--kv-pages", engine.pages, "Pages of 32 tokens")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  fake->add_option("--max-seqs", engine.max_sequences, "Sequences that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  fake->add_option("--max-queue", engine.max_queue, "Sequences that may wait; more get 429")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  auto* gateways = fake->add_option("--gateway", flags->gateways, "Gateway to register with; may be repeated")
                       ->allow_extra_args(false);
  auto* token = fake->add_option("--token-file", flags->token_file, "File with the cluster token");
  gateways->needs(token);
  token->needs(gateways);
  fake->add_flag("--plain", flags->worker.plain,
                 "As an engine of the OpenAI API alone: no reports, no token ids")
      ->excludes(gateways);
  fake->add_option("--harm", flags->harm, "What it does wrong on purpose")
      ->capture_default_str()
      ->check(CLI::IsMember(kHarms));
  fake->add_option("--drain-seconds", flags->drain_seconds,
                   "After SIGTERM, how long running answers may take")
      ->capture_default_str()
      ->check(real_range(0.0, 86400.0));
  fake->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  fake->callback([flags, &exit_code] {
    set_log_level(log_level_of(flags->log_level));
    flags->worker.harm = kHarms.at(flags->harm);
    exit_code = run_fake(*flags);
  });
}

}  // namespace shoal::cli
