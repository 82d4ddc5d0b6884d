#include "cli/bench_serve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench_serve_load.h"
#include "cli/bench_serve_report.h"
#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "cli/real_range.h"
#include "cli/trace_file.h"
#include "wire/tls_context.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

constexpr double kMaxRequests = 1'000'000;

struct ServeFlags {
  std::vector<std::string> urls;
  double rate = 0;
  std::string trace;
  double speed = 1;
  double length_scale = 1;
  LoadPromise promise;
  policy::ClassLimits classes;
  bool keep_alive = false;
  std::string svg;
  int requests = 0;
  double duration = 0;
  std::string prompt_file;
  std::string prompt_tokens = "128";
  int vocabulary = 256;
  int max_tokens = 64;
  bool stop_at_eos = false;
  std::uint64_t seed = 1;
  double deadline = 600;
  std::string api_key;
  std::string ca_file;
  std::string json;
  bool as_json = false;
};

double offered_rate(const ServeFlags& flags, const LoadPlan& plan) {
  if (flags.trace.empty()) return flags.rate;
  return plan.arrivals.back() > 0 ? static_cast<double>(plan.arrivals.size()) / plan.arrivals.back() : 0;
}

ordered_json report_of(const ServeFlags& flags, const LoadPlan& plan, const std::vector<LoadRecord>& records,
                       const LoadSummary& summary, const std::map<std::string, LoadSummary>& classes) {
  ordered_json run = figures(summary, flags.promise);
  run["seconds"] = summary.seconds;
  run["answered"] = summary.answered;
  run["failed"] = records.size() - summary.answered;
  run["errors"] = summary.errors;
  run["prompt_tokens"] = summary.prompt_tokens;
  run["cached_tokens"] = summary.cached_tokens;
  run["completion_tokens"] = summary.completion_tokens;
  run["worst_send_lag_ms"] = summary.worst_send_lag_ms;
  for (const auto& [name, of] : classes) {
    run["classes"][name] = figures(of, flags.promise);
    run["classes"][name]["requests"] = of.requests;
  }
  return {{"bench", "serve"},
          {"machine", machine_facts()},
          {"ceilings", {{"offered_requests_per_s", offered_rate(flags, plan)}}},
          {"params",
           {{"urls", flags.urls},
            {"rate", flags.rate},
            {"requests", plan.arrivals.size()},
            {"duration_s", flags.duration},
            {"trace", flags.trace},
            {"speed", flags.speed},
            {"length_scale", flags.length_scale},
            {"promise_ttft_ms", flags.promise.ttft_ms},
            {"promise_gap_ms", flags.promise.gap_ms},
            {"prompt_file", flags.prompt_file},
            {"prompt_tokens", flags.prompt_file.empty() && flags.trace.empty() ? flags.prompt_tokens : ""},
            {"max_tokens", flags.max_tokens},
            {"ignore_eos", plan.ignore_eos},
            {"keep_alive", plan.keep_alive},
            {"seed", flags.seed}}},
          {"runs", ordered_json::array({run})},
          {"median", figures(summary, flags.promise)},
          {"peer", nullptr}};
}

// "128" or "64-256".
bool parse_lengths(const std::string& text, int& least, int& most) {
  char rest = 0;
  const int found = std::sscanf(text.c_str(), "%d-%d%c", &least, &most, &rest);
  if (found == 1 && text.find_first_not_of("0123456789") == std::string::npos) most = least;
  if (found != 2 && !(found == 1 && most == least)) return false;
  return least >= 1 && most >= least && most <= 1'000'000;
}

int complain_usage(std::string message) {
  return complain("bench serve", Status(ErrorCode::kInvalidArgument, std::move(message)), 2);
}

int cannot_write(const std::string& file) {
  return complain("bench serve", Status(ErrorCode::kIo, file + ": cannot be written"));
}

// Arrivals, lengths and prompts as the trace has them.
int make_trace_plan(const ServeFlags& flags, LoadPlan& plan) {
  auto read = read_trace(flags.trace, static_cast<std::size_t>(flags.requests), flags.seed);
  if (!read) return complain("bench serve", read.error());
  const auto requests = std::make_shared<const std::vector<TraceRequest>>(*std::move(read));
  for (const TraceRequest& request : *requests) {
    const double at = request.at / flags.speed;
    if (flags.duration > 0 && at > flags.duration) break;
    plan.arrivals.push_back(at);
    plan.output_tokens.push_back(
        static_cast<int>(std::min<std::int64_t>(scaled(request.output_tokens, flags.length_scale), 1 << 30)));
  }
  plan.make_prompt = [requests, scale = flags.length_scale, vocabulary = flags.vocabulary,
                      seed = flags.seed](std::size_t i) {
    const auto ids = trace_prompt((*requests)[i], scale, vocabulary, seed + i);
    std::string body = "{\"prompt\":[";
    for (std::size_t at = 0; at < ids.size(); ++at) body += (at == 0 ? "" : ",") + std::to_string(ids[at]);
    return LoadPrompt{"/v1/completions", body + "]}"};
  };
  return 0;
}

// 0, or the exit code after a message.
int make_plan(const ServeFlags& flags, LoadPlan& plan) {
  for (const std::string& text : flags.urls) {
    auto url = wire::Url::parse(text);
    if (!url) return complain_usage(url.error().message());
    plan.targets.push_back(std::move(*url));
  }
  if (!flags.trace.empty()) return make_trace_plan(flags, plan);
  if (flags.requests == 0 && flags.duration * flags.rate > kMaxRequests) {
    return complain_usage(fmt::format("--rate times --duration exceeds {:.0f} requests", kMaxRequests));
  }
  const int count = flags.requests == 0 && flags.duration == 0 ? 100 : flags.requests;
  plan.arrivals = poisson_arrivals(flags.rate, count, flags.duration, flags.seed);
  if (flags.prompt_file.empty()) {
    int least = 0;
    int most = 0;
    if (!parse_lengths(flags.prompt_tokens, least, most)) {
      return complain_usage("--prompt-tokens takes N or LEAST-MOST");
    }
    plan.prompts =
        synthetic_prompts(static_cast<int>(plan.arrivals.size()), least, most, flags.vocabulary, flags.seed);
  } else {
    auto prompts = read_prompts(flags.prompt_file);
    if (!prompts) return complain("bench serve", prompts.error());
    plan.prompts = std::move(*prompts);
  }
  return 0;
}

int set_common(const ServeFlags& flags, LoadPlan& plan) {
  plan.max_tokens = flags.max_tokens;
  plan.ignore_eos = !flags.stop_at_eos;
  plan.seed = flags.seed;
  plan.deadline = flags.deadline;
  plan.api_key = flags.api_key;
  plan.keep_alive = flags.keep_alive;
  if (!flags.ca_file.empty()) {
    auto trusted = wire::TlsContext::for_client(flags.ca_file);
    if (!trusted) return complain("bench serve", trusted.error());
    plan.tls = *std::move(trusted);
  }
  plan.show_progress = true;
  return 0;
}

int run_bench(const ServeFlags& flags) {
  LoadPlan plan;
  if (flags.trace.empty() && flags.rate == 0) return complain_usage("--rate R or --trace FILE is needed");
  if (const int failed = set_common(flags, plan); failed != 0) return failed;
  if (const int failed = make_plan(flags, plan); failed != 0) return failed;
  std::ofstream file, svg;
  if (!flags.svg.empty()) {
    svg.open(flags.svg);
    if (!svg) return cannot_write(flags.svg);
  }
  if (!flags.json.empty()) {
    file.open(flags.json);
    if (!file) return cannot_write(flags.json);
  }
  const std::vector<LoadRecord> records = run_load(plan);
  std::vector<const LoadRecord*> all;
  for (const LoadRecord& record : records) all.push_back(&record);
  const LoadSummary summary = summarise(all, flags.promise);
  const auto classes = summarise_by_class(records, flags.promise, flags.classes);
  const ordered_json report = report_of(flags, plan, records, summary, classes);
  const std::string text = report.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  if (file.is_open()) file << text << '\n';
  if (svg.is_open()) svg << load_svg(records, flags.classes, flags.promise);
  if (flags.as_json && flags.json.empty()) {
    fmt::print("{}\n", text);
  } else {
    print_load_table(summary, classes, flags.promise, offered_rate(flags, plan));
  }
  if (file.is_open() && !file.flush()) return cannot_write(flags.json);
  if (svg.is_open() && !svg.flush()) return cannot_write(flags.svg);
  return summary.answered > 0 ? 0 : 1;
}

}  // namespace

void add_bench_serve(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* serve = bench.add_subcommand("serve", "Latency and throughput of running servers, open loop");
  serve->add_option("--url", flags->urls, "Servers, taken in turn: http[s]://HOST:PORT[,...]")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false);
  CLI::Option* rate = serve->add_option("--rate", flags->rate, "Requests a second, Poisson arrivals")
                          ->check(real_range(1e-3, 1e5));
  CLI::Option* requests = serve->add_option("--requests", flags->requests, "How many requests (100)")
                              ->check(CLI::Range(1, static_cast<int>(kMaxRequests)));
  serve->add_option("--duration", flags->duration, "Seconds of arrivals, instead of --requests")
      ->check(real_range(0.1, 1e6))
      ->excludes(requests);
  CLI::Option* prompt_file =
      serve->add_option("--prompt-file", flags->prompt_file,
                        "JSON lines with messages, prompt, turns or question, taken in turn");
  serve->add_option("--prompt-tokens", flags->prompt_tokens, "Length of random prompts: N or LEAST-MOST")
      ->capture_default_str()
      ->excludes(prompt_file);
  CLI::Option* trace =
      serve
          ->add_option("--trace", flags->trace,
                       "Arrivals and lengths from a trace: Mooncake's JSON lines, Azure's or ServeGen's CSV")
          ->excludes(rate)
          ->excludes(prompt_file);
  serve->add_option("--speed", flags->speed, "How much faster than the trace")
      ->capture_default_str()
      ->check(real_range(1e-3, 1e6))
      ->needs(trace);
  serve->add_option("--length-scale", flags->length_scale, "Lengths of the trace times this")
      ->capture_default_str()
      ->check(real_range(1e-4, 1e3))
      ->needs(trace);
  serve
      ->add_option("--slo-ttft", flags->promise.ttft_ms,
                   "Milliseconds to the first token that an answer is to keep")
      ->check(real_range(0.001, 1e9));
  serve
      ->add_option("--slo-gap", flags->promise.gap_ms,
                   "Milliseconds between its tokens, on the mean, that an answer is to keep")
      ->check(real_range(0.001, 1e9));
  serve->add_option("--long-input", flags->classes.long_input, "Tokens from which a prompt counts as long")
      ->capture_default_str()
      ->check(real_range(1.0, 1e9));
  serve->add_option("--long-output", flags->classes.long_output, "Tokens from which an answer counts as long")
      ->capture_default_str()
      ->check(real_range(1.0, 1e9));
  serve->add_flag("--keep-alive", flags->keep_alive, "Connections serve one request after the other");
  serve->add_option("--svg", flags->svg, "Times to first token and between tokens as curves, to this file");
  serve->add_option("--vocabulary", flags->vocabulary, "Random prompts use token ids below this")
      ->capture_default_str()
      ->check(CLI::Range(4, 1 << 30));
  serve->add_option("--max-tokens", flags->max_tokens, "Tokens of each answer")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 30));
  serve->add_flag("--stop-at-eos", flags->stop_at_eos, "Let answers end by themselves before --max-tokens");
  serve->add_option("--seed", flags->seed, "Of arrivals, random prompts and sampling")->capture_default_str();
  serve->add_option("--deadline", flags->deadline, "Seconds after which a request counts as failed")
      ->capture_default_str()
      ->check(real_range(0.1, 1e6));
  serve->add_option("--api-key", flags->api_key, "Sent as Authorization: Bearer KEY");
  serve->add_option("--ca-file", flags->ca_file,
                    "PEM file of the certificates to trust for https:// (default: this system's)");
  serve->add_option("--json", flags->json, "Report as JSON, to the file named or instead of the table")
      ->expected(0, 1)
      ->type_name("[FILE]");
  serve->callback([flags, serve, &exit_code] {
    flags->as_json = serve->count("--json") > 0;
    exit_code = run_bench(*flags);
  });
}

}  // namespace shoal::cli
