#include "cli/serve.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/cli_layout.h"
#include "cli/cli_model.h"
#include "cli/fault_file.h"
#include "cli/flag_checks.h"
#include "cli/handover_flags.h"
#include "cli/milliseconds.h"
#include "cli/rank_launcher.h"
#include "cli/real_range.h"
#include "cli/stop_signals.h"
#include "cli/token_file.h"
#include "core/log.h"
#include "engine/engine.h"
#include "formats/generation_config.h"
#include "handover/bootstrap.h"
#include "serving/gateway_registration.h"
#include "serving/service.h"
#include "wire/registration_key.h"
#include "wire/tls_context.h"

namespace shoal::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  LayoutFlags layout;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::string served_name;
  std::string api_key_file;
  std::string tls_cert;
  std::string tls_key;
  std::string generation_config = "auto";
  std::string prefill_chunk = "auto";
  std::string retract = "auto";
  double max_token_gap_ms = 200;
  double drain_seconds = 30;
  std::string listen_ranks;
  std::string token_file;
  std::string fault_plan;
  HandoverFlags handover;
  double join_seconds = 60;
  std::vector<std::string> gateways;
  std::string advertise;
  std::string log_level = "info";
  engine::EngineOptions engine;
};

// While it lives, a stop signal ends the process at once: for the time of loading, when nothing can be
// running that a drain would wait for. Joined before the first request is taken.
class StopWhileLoading {
 public:
  explicit StopWhileLoading(const StopSignals& stop) : thread_([this, &stop] { watch(stop); }) {}
  ~StopWhileLoading() {
    loaded_.store(true);
    thread_.join();
  }

 private:
  void watch(const StopSignals& stop) const {
    while (!loaded_.load()) {
      // Short: it is also how long a server that has loaded waits before it begins.
      const int signal = stop.wait(std::chrono::milliseconds(20));
      if (signal == 0) continue;
      log(LogLevel::kInfo, "serve.stopped", "signal={} while=loading", signal);
      // Not by destructors: the loading threads cannot be called back from the middle of a file.
      std::_Exit(0);
    }
  }

  std::atomic<bool> loaded_{false};
  std::thread thread_;  // last: it reads the flag
};

Expected<std::int32_t> prefill_chunk_of(const std::string& text) {
  if (text == "auto") return 0;
  std::size_t used = 0;
  long value = 0;
  try {
    value = std::stol(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || value < 1 || value > 1'000'000) {
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("--prefill-chunk is '{}'; it must be 'auto' or a number of tokens from 1", text));
  }
  return static_cast<std::int32_t>(value);
}

// As clients are to know it: "DIR/" and "." have names too.
std::filesystem::path named(const std::string& model) {
  const std::filesystem::path path = std::filesystem::absolute(model).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

std::string default_name(const std::filesystem::path& model) {
  return model.extension() == ".gguf" ? model.stem().string() : model.filename().string();
}

// What the model's makers recommend; reading refuses what no request could ask for, but for a top_p of 0,
// which means the likeliest token. So does recommending no sampling.
Expected<wire::SamplingFields> sampling_defaults(const ServeFlags& flags) {
  wire::SamplingFields fields;
  if (flags.generation_config != "auto") return fields;
  SHOAL_ASSIGN(makers, formats::read_generation_defaults(flags.model.model));
  fields.temperature = makers.temperature.value_or(fields.temperature);
  if (makers.do_sample == false) fields.temperature = 0;
  fields.top_p = std::max(makers.top_p.value_or(fields.top_p), 1e-6);
  fields.top_k = makers.top_k.value_or(fields.top_k);
  fields.min_p = makers.min_p.value_or(fields.min_p);
  fields.repetition_penalty = makers.repetition_penalty.value_or(fields.repetition_penalty);
  return fields;
}

// Where ranks from other hosts join, and with which token.
Expected<engine::RankJoining> joining_of(const ServeFlags& flags) {
  engine::RankJoining joining = flags.engine.joining;
  joining.time = milliseconds_of(flags.join_seconds);
  if (!flags.listen_ranks.empty()) {
    auto listen = comm::parse_endpoint(flags.listen_ranks);
    if (!listen.ok())
      return Status(ErrorCode::kInvalidArgument, "--listen-ranks: " + listen.error().message(),
                    "--listen-ranks");
    joining.listen = *std::move(listen);
    // Without a number for this host's: the other hosts have all but this one.
    if (joining.local_ranks == 0) joining.local_ranks = 1;
  }
  // Ranks call those of the other worker with it; else it may be for gateways alone.
  if (!flags.listen_ranks.empty() || flags.handover.role != "both") {
    SHOAL_ASSIGN(token, load_token(flags.token_file));
    joining.token = std::make_shared<const wire::ClusterToken>(std::move(token));
  }
  return joining;
}

Expected<std::unique_ptr<serving::Worker>> load_worker(const ServeFlags& flags) {
  SHOAL_ASSIGN(defaults, sampling_defaults(flags));
  ProgressLine line("Loading");
  engine::EngineOptions options = flags.engine;
  flags.model.apply_to(options);
  options.max_token_gap = flags.max_token_gap_ms / 1000;
  options.progress = [&line](std::string_view, double fraction) {
    line.show(static_cast<std::uint64_t>(fraction * 1000), 1000);
  };
  flags.layout.apply_to(options);
  options.build = SHOAL_VERSION;
  options.launcher =
      std::make_shared<ProcessLauncher>(flags.log_level, flags.engine.joining.host, flags.fault_plan);
  if (!flags.fault_plan.empty()) {
    SHOAL_ASSIGN(faults, read_fault_file(flags.fault_plan,
                                         options.degrees.tp * options.degrees.pp * options.degrees.cp));
    options.faults = std::move(faults);
  }
  SHOAL_ASSIGN(joining, joining_of(flags));
  options.joining = std::move(joining);
  SHOAL_ASSIGN(ports, flags.handover.equip(options, flags.host));
  SHOAL_ASSIGN(engine, engine::Engine::start(std::move(options)));
  SHOAL_ASSIGN(prompts, serving::PromptBuilder::make(engine->tokenizer(), engine->context()));
  const std::filesystem::path model = named(flags.model.model);
  auto worker = std::make_unique<serving::Worker>(serving::Worker{
      .engine = std::move(engine),
      .prompts = std::move(prompts),
      .served_name = flags.served_name.empty() ? default_name(model) : flags.served_name,
      .model_file = model.filename().string(),
      .created = static_cast<std::int64_t>(std::time(nullptr)),
      .sampling_defaults = defaults,
      .max_choices = std::int64_t{flags.engine.max_sequences} + flags.engine.max_queue,
      .max_sequences = flags.engine.max_sequences,
      // As many as may wait in the engine's queue: one bound on what waits to be read, one on what waits to
      // run.
      .text = std::make_unique<serving::TextThread>(static_cast<std::size_t>(flags.engine.max_queue)),
  });
  SHOAL_TRY(flags.handover.start(*worker, std::move(ports), flags.host));
  return worker;
}

void report_start(const serving::Worker& worker) {
  const engine::Engine& engine = *worker.engine;
  const model::ModelDescription& description = engine.description();
  log(LogLevel::kInfo, "model.loaded",
      "name={} architecture={} parameters={} weights_mib={} kv_mib={} context={} threads={} fingerprint={}",
      worker.served_name, description.architecture, description.parameters, engine.weight_bytes() >> 20,
      engine.kv_bytes() >> 20, engine.context(), engine.threads(), description.fingerprint);
  const wire::SamplingFields& sampling = worker.sampling_defaults;
  log(LogLevel::kInfo, "sampling.defaults", "temperature={} top_p={} top_k={} min_p={} repetition_penalty={}",
      sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, sampling.repetition_penalty);
  for (const std::string& line : engine.kernel_report()) log(LogLevel::kInfo, "model.kernels", "{}", line);
}

std::string url_of(const ServeFlags& flags, std::uint16_t port) {
  const bool is_v6 = flags.host.find(':') != std::string::npos;
  return fmt::format("http{}://{}:{}", flags.tls_cert.empty() ? "" : "s",
                     is_v6 ? "[" + flags.host + "]" : flags.host, port);
}

// Where gateways are told of this worker; nobody where none is named.
Expected<serving::RegistrationOptions> registration_of(const ServeFlags& flags) {
  serving::RegistrationOptions options;
  if (flags.gateways.empty()) return options;
  for (const std::string& text : flags.gateways) {
    SHOAL_ASSIGN(url, wire::Url::parse(text));
    options.gateways.push_back(url);
  }
  SHOAL_ASSIGN(token, load_token(flags.token_file));
  options.key = wire::registration_key(token);
  options.url = flags.advertise;
  if (options.url.empty() && (flags.host == "0.0.0.0" || flags.host == "::"))
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("--host {} is no address that a gateway could reach: say which with --advertise URL",
                    flags.host),
        "--advertise");
  if (!options.url.empty()) SHOAL_TRY(wire::Url::parse(options.url).status());
  return options;
}

int run_serve(const ServeFlags& flags) {
  const StopSignals stop({SIGTERM, SIGINT});
  serving::ServiceOptions options;
  options.host = flags.host;
  options.port = flags.port;
  if (!flags.api_key_file.empty()) {
    auto keys = serving::ApiKeys::load(flags.api_key_file);
    if (!keys.ok()) return complain("serve", keys.error());
    options.keys = *std::move(keys);
  }
  if (!flags.tls_cert.empty()) {
    auto tls = wire::TlsContext::for_server(flags.tls_cert, flags.tls_key);
    if (!tls.ok()) return complain("serve", tls.error());
    options.http.tls = *std::move(tls);
  }
  auto registration = registration_of(flags);
  if (!registration.ok()) return complain("serve", registration.error(), 2);
  auto service = serving::Service::start(std::move(options));
  if (!service.ok()) return complain("serve", service.error());
  auto worker = [&] {
    const StopWhileLoading watch(stop);
    return load_worker(flags);
  }();
  if (!worker.ok()) return complain("serve", worker.error());
  report_start(**worker);
  (*service)->set_worker(*std::move(worker));

  const std::string url = url_of(flags, (*service)->port());
  fmt::print("listening on {}\n", url);
  std::fflush(stdout);
  std::optional<serving::RegisteredWorker> registered;
  if (!registration->gateways.empty()) {
    if (registration->url.empty()) registration->url = url;
    registered.emplace(*std::move(registration), [&service = **service] { return service.report(); });
  }

  int signal = 0;
  while (signal == 0) signal = stop.wait(std::chrono::hours(1));
  log(LogLevel::kInfo, "serve.draining", "signal={} seconds={}", signal, flags.drain_seconds);
  const bool clean = stop.run_to_end([&] { return (*service)->drain(milliseconds_of(flags.drain_seconds)); });
  log(LogLevel::kInfo, "serve.stopped", "cut_short={}", !clean);
  return 0;
}

void add_joining_flags(CLI::App& serve, ServeFlags& flags) {
  auto* listen = serve.add_option("--listen-ranks", flags.listen_ranks,
                                  "HOST:PORT where ranks from other hosts join (shoal rank)");
  auto* token = serve.add_option("--token-file", flags.token_file,
                                 "File with the cluster token, which those ranks must hold too");
  listen->check(endpoint_check());
  token->check(not_empty("names no file", "FILE"));
  listen->needs(token);
  serve
      .add_option("--fabric", flags.engine.joining.fabric,
                  "Interface of a trusted network, over which ranks of other hosts are reached with UCX; "
                  "default: TCP, which is authenticated")
      ->check(not_empty("names no interface", "IFACE"))
      ->needs(listen);
  auto* gateways =
      serve
          .add_option("--gateway", flags.gateways,
                      "URL of a gateway to register with, which holds the cluster token, too; may be "
                      "repeated")
          ->allow_extra_args(false);
  gateways->needs(token);
  serve
      .add_option("--advertise", flags.advertise,
                  "URL where gateways reach this server; default: of --host and --port")
      ->needs(gateways);
  auto* role = add_handover_flags(serve, flags.handover);
  token->check([listen, gateways, role](const std::string&) {
    const bool has_role = role->count() > 0 && role->results().back() != "both";
    return listen->count() + gateways->count() > 0 || has_role
               ? ""
               : "is for --listen-ranks, --gateway or a --role";
  });
  serve
      .add_option("--local-ranks", flags.engine.joining.local_ranks,
                  "Ranks of this host, the server included, which it starts; default: all, or with "
                  "--listen-ranks the server alone")
      ->check(CLI::Range(1, 4096));
  serve.add_option("--join-seconds", flags.join_seconds, "How long ranks may take to join at the start")
      ->capture_default_str()
      ->check(real_range(1.0, 86400.0));
  if (kTakesFaults) serve.add_option("--fault-plan", flags.fault_plan, "Faults to be harmed by, as JSON");
  serve
      .add_option("--host-id", flags.engine.joining.host,
                  "What tells this host from others; default: boot id and network namespace")
      ->check(host_id_check());
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* serve = app.add_subcommand("serve", "Serve a model over the OpenAI API");
  add_model_flags(*serve, flags->model);
  serve->add_option("--host", flags->host, "Address to listen on; 0.0.0.0 for every network")
      ->capture_default_str();
  serve->add_option("--port", flags->port, "Port to listen on; 0 takes a free one")->capture_default_str();
  serve->add_option("--served-model-name", flags->served_name,
                    "What clients call the model; default: the file's name");
  serve
      ->add_option(
          "--generation-config", flags->generation_config,
          "Sampling fields that requests leave out: auto, as the model's makers recommend; none, as OpenAI's")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "none"}));
  serve
      ->add_option("--ctx", flags->engine.context,
                   "Longest prompt plus answer in tokens; default: what the model was made for")
      ->check(CLI::Range(1, 1 << 24));
  add_layout_flags(*serve, flags->layout);
  add_joining_flags(*serve, *flags);
  auto* pages =
      serve->add_option("--kv-pages", flags->engine.kv_pages, "Size of the KV pool in pages of 32 tokens")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  serve->add_option("--kv-bytes", flags->engine.kv_bytes, "Size of the KV pool in bytes (also 512MiB, 4GiB)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 50))
      ->excludes(pages);
  serve
      ->add_option("--offload-bytes", flags->engine.offload_bytes,
                   "Host memory of each rank (also 512MiB, 4GiB) that keeps the KV of answers that have to "
                   "wait for pages; 0: none; default: a quarter of the KV pool's")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 46));
  serve
      ->add_option("--retract", flags->retract,
                   "How they come back: auto, whichever is predicted fastest; offload, from that memory; "
                   "recompute, computed again")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "offload", "recompute"}));
  serve->add_option("--max-seqs", flags->engine.max_sequences, "Sequences that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  serve
      ->add_option("--max-queue", flags->engine.max_queue,
                   "Requests that may wait to be read, and answers that may wait to run; more get 429")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  serve
      ->add_option("--prefill-chunk", flags->prefill_chunk,
                   "Tokens of a prompt computed at a time; auto: as many as the token gap allows")
      ->capture_default_str();
  serve
      ->add_option("--max-token-gap", flags->max_token_gap_ms,
                   "Longest pause in a running stream while a prompt is computed, in ms")
      ->capture_default_str()
      ->check(real_range(1.0, 1e6));
  serve->add_option("--api-key-file", flags->api_key_file,
                    "File with one API key a line; without it everyone may ask");
  auto* tls_cert = serve->add_option("--tls-cert", flags->tls_cert,
                                     "PEM file of the certificate and its chain: serves https:// alone");
  auto* tls_key =
      serve->add_option("--tls-key", flags->tls_key, "PEM file of its private key, not encrypted");
  tls_cert->needs(tls_key);
  tls_key->needs(tls_cert);
  for (CLI::Option* file : {tls_cert, tls_key}) file->check(not_empty("names no file", "FILE"));
  serve
      ->add_option("--drain-seconds", flags->drain_seconds,
                   "After SIGTERM, how long running answers may take to finish")
      ->capture_default_str()
      ->check(real_range(0.0, 86400.0));
  serve->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  serve->callback([flags, &exit_code] {
    set_log_level(log_level_of(flags->log_level));
    auto chunk = prefill_chunk_of(flags->prefill_chunk);
    if (!chunk.ok()) {
      exit_code = complain("serve", chunk.error(), 2);
      return;
    }
    flags->engine.prefill_chunk = *chunk;
    if (flags->retract != "auto")
      flags->engine.retract =
          flags->retract == "offload" ? policy::Retraction::kOffload : policy::Retraction::kRecompute;
    engine::EngineOptions shape;
    flags->layout.apply_to(shape);
    flags->handover.token_file = flags->token_file;
    if (const Status status = flags->handover.check(shape.degrees); !status.ok()) {
      exit_code = complain("serve", status, 2);
      return;
    }
    exit_code = run_serve(*flags);
  });
}

}  // namespace shoal::cli
