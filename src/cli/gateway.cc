#include "cli/gateway.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli_model.h"
#include "cli/file_limit.h"
#include "cli/gateway_config.h"
#include "cli/milliseconds.h"
#include "cli/real_range.h"
#include "cli/stop_signals.h"
#include "cli/token_file.h"
#include "core/log.h"
#include "gateway/gateway.h"
#include "wire/registration_key.h"
#include "wire/tls_context.h"

namespace shoal::cli {
namespace {

struct GatewayFlags {
  std::string config;
  std::vector<std::string> prefill_workers;
  std::vector<std::string> aliases;
  std::string policy = "shortest_queue";
  std::string worker_file;
  std::string worker_ca_file;
  std::string worker_api_key_file;
  std::string key_file;
  std::string admin_key_file;
  std::string token_file;
  std::string tls_cert;
  std::string tls_key;
  std::string log_level = "info";
  double drain_seconds = 30;
  double queue_seconds = 30;
  double worker_seconds = 30;
  double stall_seconds = 30;
  double deadline_seconds = 3600;
  double probe_seconds = 0.4;
  double lease_seconds = 2;
  gateway::GatewayOptions gateway;
};

// The first line that is none of comment and blank.
Expected<std::string> read_secret(const std::string& file) {
  std::ifstream in(file);
  if (!in) return Status(ErrorCode::kIo, fmt::format("{}: cannot be read", file));
  for (std::string line; std::getline(in, line);) {
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
  }
  return Status(ErrorCode::kInvalidArgument, fmt::format("{}: holds no key", file));
}

Status read_aliases(const GatewayFlags& flags, gateway::GatewayOptions& options) {
  for (const std::string& pair : flags.aliases) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == pair.size())
      return {ErrorCode::kInvalidArgument, fmt::format("--alias '{}': it must be NAME=MODEL", pair)};
    if (!options.aliases.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second)
      return {ErrorCode::kInvalidArgument, fmt::format("--alias names '{}' twice", pair.substr(0, equals))};
  }
  return {};
}

Status read_secrets(const GatewayFlags& flags, gateway::GatewayOptions& options) {
  if (!flags.key_file.empty()) {
    SHOAL_ASSIGN(keys, gateway::ClientKeys::load(flags.key_file));
    options.keys = std::move(keys);
  }
  if (!flags.admin_key_file.empty()) {
    SHOAL_ASSIGN(key, read_secret(flags.admin_key_file));
    options.admin_key = key;
  }
  if (!flags.worker_api_key_file.empty()) {
    SHOAL_ASSIGN(key, read_secret(flags.worker_api_key_file));
    options.worker_api_key = options.probes.api_key = key;
  }
  if (!flags.token_file.empty()) {
    SHOAL_ASSIGN(token, load_token(flags.token_file));
    options.registration_key = wire::registration_key(token);
  }
  if (!flags.tls_cert.empty()) {
    SHOAL_ASSIGN(tls, wire::TlsContext::for_server(flags.tls_cert, flags.tls_key));
    options.tls = std::move(tls);
  }
  if (!flags.worker_ca_file.empty()) {
    SHOAL_ASSIGN(tls, wire::TlsContext::for_client(flags.worker_ca_file));
    options.worker_tls = std::move(tls);
  }
  return {};
}

// URL, or URL,PORT.
Status read_prefill_workers(const GatewayFlags& flags, gateway::GatewayOptions& options) {
  for (const std::string& text : flags.prefill_workers) {
    const std::size_t comma = text.rfind(',');
    gateway::GatewayOptions::PrefillWorker& worker = options.prefill_workers.emplace_back();
    worker.url = text.substr(0, comma);
    if (comma == std::string::npos) continue;
    unsigned port = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + comma + 1, end, port);
    if (error != std::errc() || rest != end || port < 1 || port > 65'535)
      return {ErrorCode::kInvalidArgument,
              fmt::format("--prefill '{}': it must be URL, or URL,PORT with the bootstrap port", text)};
    worker.bootstrap_port = static_cast<std::uint16_t>(port);
  }
  return {};
}

Expected<gateway::GatewayOptions> options_of(const GatewayFlags& flags) {
  gateway::GatewayOptions options = flags.gateway;
  options.policy = *policy::route_policy_of(flags.policy);
  options.worker_file = flags.worker_file;
  options.queue_patience = milliseconds_of(flags.queue_seconds);
  options.worker_patience = milliseconds_of(flags.worker_seconds);
  options.stall = milliseconds_of(flags.stall_seconds);
  options.deadline = milliseconds_of(flags.deadline_seconds);
  options.probes.interval = milliseconds_of(flags.probe_seconds);
  options.probes.plain_interval = options.probes.interval * 5 / 2;
  options.probes.lease = milliseconds_of(flags.lease_seconds);
  SHOAL_TRY(read_aliases(flags, options));
  SHOAL_TRY(read_secrets(flags, options));
  SHOAL_TRY(read_prefill_workers(flags, options));
  if (options.workers.empty() && options.prefill_workers.empty() && options.decode_workers.empty() &&
      options.worker_file.empty() && options.registration_key.empty() && options.admin_key.empty())
    return Status(
        ErrorCode::kInvalidArgument,
        "no workers: name them with --worker URL, --prefill URL and --decode URL, or --worker-file, or let "
        "them register with --token-file");
  return options;
}

std::string shown_url(bool tls, const std::string& host, std::uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("http{}://{}:{}", tls ? "s" : "", is_v6 ? "[" + host + "]" : host, port);
}

int run_gateway(const GatewayFlags& flags) {
  const StopSignals stop({SIGTERM, SIGINT});
  raise_file_limit();
  auto options = options_of(flags);
  if (!options.ok())
    return complain("gateway", options.error(),
                    options.error().code() == ErrorCode::kInvalidArgument ? 2 : 1);
  auto started = gateway::Gateway::start(*std::move(options));
  if (!started.ok()) return complain("gateway", started.error());
  gateway::Gateway& gateway = **started;
  if (gateway.admin_port() != 0)
    fmt::print("admin API on {}\n",
               shown_url(!flags.tls_cert.empty(), flags.gateway.admin_host, gateway.admin_port()));
  fmt::print("listening on {}\n", shown_url(!flags.tls_cert.empty(), flags.gateway.host, gateway.port()));
  std::fflush(stdout);

  int signal = 0;
  while (signal == 0) signal = stop.wait(std::chrono::hours(1));
  log(LogLevel::kInfo, "gateway.draining", "signal={} seconds={}", signal, flags.drain_seconds);
  const bool clean = stop.run_to_end([&] { return gateway.drain(milliseconds_of(flags.drain_seconds)); });
  log(LogLevel::kInfo, "gateway.stopped", "cut_short={}", !clean);
  return 0;
}

void add_worker_flags(CLI::App& app, GatewayFlags& flags) {
  app.add_option("--worker", flags.gateway.workers, "A worker's URL; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--prefill", flags.prefill_workers,
                 "A prefill worker's URL; may be repeated. URL,PORT where its bootstrap port is not 8998 and "
                 "it does not say so itself (SGLang)")
      ->allow_extra_args(false);
  app.add_option("--decode", flags.gateway.decode_workers, "A decode worker's URL; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--worker-file", flags.worker_file,
                 "File with one worker's URL a line, looked at every second");
  app.add_option("--token-file", flags.token_file,
                 "File with the cluster token: workers that hold it register themselves (serve --gateway)");
  app.add_option("--worker-api-key-file", flags.worker_api_key_file, "File with the key that workers want");
  app.add_option("--worker-ca-file", flags.worker_ca_file,
                 "PEM file of the certificates to trust for https:// workers (default: this system's)");
  app.add_option("--alias", flags.aliases, "NAME=MODEL: clients may call MODEL NAME, too; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--policy", flags.policy, "Which worker gets a request")
      ->capture_default_str()
      ->check(CLI::IsMember({"shortest_queue", "power_of_two", "round_robin", "random"}));
  app.add_option("--probe-seconds", flags.probe_seconds,
                 "How often workers are asked how they are; plain engines 2.5 times as seldom")
      ->capture_default_str()
      ->check(real_range(0.05, 3600.0));
  app.add_option("--lease-seconds", flags.lease_seconds,
                 "After so long without a word a registered worker counts as lost")
      ->capture_default_str()
      ->check(real_range(0.2, 3600.0));
}

void add_limit_flags(CLI::App& app, GatewayFlags& flags) {
  gateway::GatewayOptions& to = flags.gateway;
  app.add_option("--max-connections", to.max_connections, "Clients' connections; one more is answered 503")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--max-running", to.max_running, "Requests at workers; further ones wait")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--max-queue", to.max_queue, "Requests that wait; further ones get 429")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--queue-seconds", flags.queue_seconds, "How long a request may wait; then it gets 429")
      ->capture_default_str()
      ->check(real_range(0.0, 86400.0));
  app.add_option("--attempts", to.attempts, "Workers that one request is given to at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app.add_option("--worker-seconds", flags.worker_seconds,
                 "How long a request waits for a worker to come where none can take it; then it gets 503")
      ->capture_default_str()
      ->check(real_range(0.0, 86400.0));
  app.add_option("--stall-seconds", flags.stall_seconds,
                 "A stream that pauses longer after its first token counts its worker as lost")
      ->capture_default_str()
      ->check(real_range(0.1, 86400.0));
  app.add_option("--deadline-seconds", flags.deadline_seconds, "Longest time of one attempt at a worker")
      ->capture_default_str()
      ->check(real_range(0.1, 1e6));
  app.add_option("--breaker-failures", to.breaker.failures,
                 "Failures in a row after which a worker is left alone for --breaker-seconds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--breaker-seconds", to.breaker.open_seconds, "How long; then one request tries it")
      ->capture_default_str()
      ->check(real_range(0.1, 86400.0));
  app.add_option("--long-input", to.classes.long_input, "Tokens from which a prompt counts as long")
      ->capture_default_str()
      ->check(real_range(1.0, 1e9));
  app.add_option("--long-output", to.classes.long_output, "Tokens from which an answer counts as long")
      ->capture_default_str()
      ->check(real_range(1.0, 1e9));
}

void add_access_flags(CLI::App& app, GatewayFlags& flags) {
  app.add_option("--key-file", flags.key_file,
                 "TOML file of API keys with tenant, models and limit; without it everyone may ask");
  app.add_option("--admin-key-file", flags.admin_key_file,
                 "File with the key of the admin API; without it this machine's own processes may use it");
  app.add_option("--admin-host", flags.gateway.admin_host, "Address of the admin API's own port")
      ->capture_default_str();
  app.add_option("--admin-port", flags.gateway.admin_port,
                 "Port for the admin API alone, 0 takes a free one; without it it is on --port")
      ->check(CLI::Range(0, 65535));
  auto* tls_cert = app.add_option("--tls-cert", flags.tls_cert,
                                  "PEM file of the certificate and its chain: serves https:// alone, the "
                                  "admin API, too");
  auto* tls_key = app.add_option("--tls-key", flags.tls_key, "PEM file of its private key, not encrypted");
  for (CLI::Option* file : {tls_cert, tls_key}) {
    file->check([](const std::string& name) { return name.empty() ? "names no file" : ""; }, "FILE");
  }
}

// Of flags and the file's keys together, where one is nothing without the other.
Status check_pairs(const CLI::App& app) {
  for (const auto& [given, wanted] : {std::pair{"--tls-cert", "--tls-key"},
                                      {"--tls-key", "--tls-cert"},
                                      {"--admin-host", "--admin-port"}}) {
    if (app.count(given) > 0 && app.count(wanted) == 0)
      return {ErrorCode::kInvalidArgument, fmt::format("{} requires {}", given, wanted)};
  }
  return {};
}

}  // namespace

void add_gateway(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<GatewayFlags>();
  CLI::App* gateway = app.add_subcommand("gateway", "One address in front of many workers of the OpenAI API");
  gateway->add_option("--config", flags->config,
                      "TOML file whose keys are these flags; those given here win");
  gateway->add_option("--host", flags->gateway.host, "Address to listen on; 0.0.0.0 for every network")
      ->capture_default_str();
  gateway->add_option("--port", flags->gateway.port, "Port to listen on; 0 takes a free one")
      ->capture_default_str();
  add_worker_flags(*gateway, *flags);
  add_access_flags(*gateway, *flags);
  add_limit_flags(*gateway, *flags);
  gateway
      ->add_option("--drain-seconds", flags->drain_seconds,
                   "After SIGTERM, how long running answers may take to finish")
      ->capture_default_str()
      ->check(real_range(0.0, 86400.0));
  gateway->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  gateway->callback([flags, gateway, &exit_code] {
    if (!flags->config.empty()) {
      if (const Status status = apply_config(*gateway, flags->config); !status.ok()) {
        exit_code = complain("gateway", status, 2);
        return;
      }
    }
    if (const Status status = check_pairs(*gateway); !status.ok()) {
      exit_code = complain("gateway", status, 2);
      return;
    }
    set_log_level(log_level_of(flags->log_level));
    exit_code = run_gateway(*flags);
  });
}

}  // namespace shoal::cli
