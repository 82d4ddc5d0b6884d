#include "cli/pair.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "cli/cli_model.h"
#include "cli/milliseconds.h"
#include "cli/pair_front.h"
#include "cli/real_range.h"
#include "cli/stop_signals.h"
#include "core/log.h"
#include "handover/bootstrap.h"
#include "wire/http_server.h"

namespace shoal::cli {
namespace {

struct PairFlags {
  std::string prefill;
  std::string decode;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::uint16_t bootstrap_port = handover::kBootstrapPort;
  double drain_seconds = 30;
};

int run_pair(const PairFlags& flags) {
  const StopSignals stop({SIGTERM, SIGINT});
  PairFront::Options options;
  for (const auto& [text, url] :
       {std::pair{&flags.prefill, &options.prefill}, {&flags.decode, &options.decode}}) {
    auto parsed = wire::Url::parse(*text);
    if (!parsed.ok()) return complain("pair", parsed.error(), 2);
    *url = *std::move(parsed);
    if (!url->path.empty() && url->path.back() == '/') url->path.pop_back();
  }
  options.bootstrap_port = flags.bootstrap_port;
  PairFront front(std::move(options));
  wire::HttpServer server;
  for (const char* path : {"/v1/completions", "/v1/chat/completions"})
    server.route("POST", path, [&front](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
      front.generate(request, response);
    });
  server.route("POST", "/abort_request",
               [&front](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
                 front.abort(request, response);
               });
  for (const auto& [method, path] : {std::pair{"GET", "/v1/models"},
                                     {"GET", "/v1/models/*"},
                                     {"POST", "/tokenize"},
                                     {"POST", "/detokenize"}})
    server.route(method, path, [&front](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
      front.relay(request, response);
    });
  server.route("GET", "/health", [&front](const wire::HttpRequest&, const wire::ResponsePtr& response) {
    front.health(response);
  });
  const auto port = server.listen(flags.host, flags.port);
  if (!port.ok()) return complain("pair", port.error());
  const bool is_v6 = flags.host.find(':') != std::string::npos;
  fmt::print("listening on http://{}:{}\n", is_v6 ? "[" + flags.host + "]" : flags.host, *port);
  std::fflush(stdout);
  int signal = 0;
  while (signal == 0) signal = stop.wait(std::chrono::hours(1));
  log(LogLevel::kInfo, "pair.draining", "signal={} seconds={}", signal, flags.drain_seconds);
  server.shutdown(milliseconds_of(flags.drain_seconds));
  return 0;
}

}  // namespace

void add_pair(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PairFlags>();
  CLI::App* pair =
      app.add_subcommand("pair", "Answer by one worker that prefills and one that decodes (serve --role)");
  pair->add_option("--prefill", flags->prefill, "URL of the prefill worker")->required();
  pair->add_option("--decode", flags->decode, "URL of the decode worker")->required();
  pair->add_option("--bootstrap-port", flags->bootstrap_port, "The prefill worker's, on its URL's host")
      ->capture_default_str()
      ->check(CLI::Range(1, 65535));
  pair->add_option("--host", flags->host, "Address to listen on; 0.0.0.0 for every network")
      ->capture_default_str();
  pair->add_option("--port", flags->port, "Port to listen on; 0 takes a free one")->capture_default_str();
  pair->add_option("--drain-seconds", flags->drain_seconds,
                   "After SIGTERM, how long running answers may take to finish")
      ->capture_default_str()
      ->check(real_range(0.0, 86400.0));
  pair->callback([flags, &exit_code] { exit_code = run_pair(*flags); });
}

}  // namespace shoal::cli
