#include "cli/bench_serve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench_serve_load.h"
#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "cli/real_range.h"
#include "wire/tls_context.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

constexpr double kMaxRequests = 1'000'000;

struct ServeFlags {
  std::vector<std::string> urls;
  double rate = 1;
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

struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

struct Summary {
  std::size_t answered = 0;
  std::map<std::string, int> errors;
  double seconds = 0;  // from the first arrival to the last answer
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  Percentiles ttft_ms;
  Percentiles gap_ms;
  Percentiles e2e_ms;
  double worst_send_lag_ms = 0;  // how late this program itself was
};

// values in seconds; nearest rank.
Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&values](double share) {
    const auto rank = static_cast<std::size_t>(share * static_cast<double>(values.size()));
    return values[std::min(rank, values.size() - 1)] * 1000;
  };
  return {at(0.5), at(0.9), at(0.99), values.back() * 1000};
}

Summary summarise(const std::vector<LoadRecord>& records) {
  Summary summary;
  std::vector<double> ttft;
  std::vector<double> gaps;
  std::vector<double> e2e;
  for (const LoadRecord& record : records) {
    summary.seconds = std::max(summary.seconds, record.end);
    summary.worst_send_lag_ms = std::max(summary.worst_send_lag_ms, (record.sent - record.due) * 1000);
    if (!record.error.empty()) {
      ++summary.errors[record.error];
      continue;
    }
    ++summary.answered;
    summary.prompt_tokens += record.prompt_tokens;
    summary.cached_tokens += record.cached_tokens;
    summary.completion_tokens += record.completion_tokens;
    ttft.push_back(record.tokens.front() - record.due);
    e2e.push_back(record.end - record.due);
    for (std::size_t i = 1; i < record.tokens.size(); ++i)
      gaps.push_back(record.tokens[i] - record.tokens[i - 1]);
  }
  summary.ttft_ms = percentiles_of(std::move(ttft));
  summary.gap_ms = percentiles_of(std::move(gaps));
  summary.e2e_ms = percentiles_of(std::move(e2e));
  return summary;
}

ordered_json to_json(const Percentiles& p) {
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"max", p.max}};
}

double per_second(std::int64_t count, const Summary& summary) {
  return summary.seconds > 0 ? static_cast<double>(count) / summary.seconds : 0;
}

ordered_json figures(const Summary& summary) {
  return {{"ttft_ms", to_json(summary.ttft_ms)},
          {"token_gap_ms", to_json(summary.gap_ms)},
          {"e2e_ms", to_json(summary.e2e_ms)},
          {"requests_per_s", per_second(static_cast<std::int64_t>(summary.answered), summary)},
          {"output_tokens_per_s", per_second(summary.completion_tokens, summary)},
          {"prompt_tokens_per_s", per_second(summary.prompt_tokens, summary)}};
}

ordered_json report_of(const ServeFlags& flags, const LoadPlan& plan, const std::vector<LoadRecord>& records,
                       const Summary& summary) {
  ordered_json run = figures(summary);
  run["seconds"] = summary.seconds;
  run["answered"] = summary.answered;
  run["failed"] = records.size() - summary.answered;
  run["errors"] = summary.errors;
  run["prompt_tokens"] = summary.prompt_tokens;
  run["cached_tokens"] = summary.cached_tokens;
  run["completion_tokens"] = summary.completion_tokens;
  run["worst_send_lag_ms"] = summary.worst_send_lag_ms;
  return {{"bench", "serve"},
          {"machine", machine_facts()},
          {"ceilings", {{"offered_requests_per_s", flags.rate}}},
          {"params",
           {{"urls", flags.urls},
            {"rate", flags.rate},
            {"requests", plan.arrivals.size()},
            {"duration_s", flags.duration},
            {"prompt_file", flags.prompt_file},
            {"prompt_tokens", flags.prompt_file.empty() ? flags.prompt_tokens : ""},
            {"max_tokens", flags.max_tokens},
            {"ignore_eos", plan.ignore_eos},
            {"seed", flags.seed}}},
          {"runs", ordered_json::array({run})},
          {"median", figures(summary)},
          {"peer", nullptr}};
}

void print_row(std::string_view name, const Percentiles& p) {
  fmt::print("{:<22}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n", name, p.p50, p.p90, p.p99, p.max);
}

void print_table(const ServeFlags& flags, const std::vector<LoadRecord>& records, const Summary& summary) {
  fmt::print("{} requests at {} a second, {} answered, {} failed, {:.1f} s\n", records.size(), flags.rate,
             summary.answered, records.size() - summary.answered, summary.seconds);
  for (const auto& [error, count] : summary.errors) fmt::print("  {} x {}\n", count, error);
  fmt::print("{:<22}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "p50", "p90", "p99", "max");
  print_row("time to first token", summary.ttft_ms);
  print_row("gap between tokens", summary.gap_ms);
  print_row("whole answer", summary.e2e_ms);
  fmt::print("output {:.1f} tokens/s, prompts {:.1f} tokens/s ({} of {} from cache), {:.2f} requests/s\n",
             per_second(summary.completion_tokens, summary), per_second(summary.prompt_tokens, summary),
             summary.cached_tokens, summary.prompt_tokens,
             per_second(static_cast<std::int64_t>(summary.answered), summary));
  if (summary.worst_send_lag_ms > 20) {
    fmt::print("note: this program sent up to {:.0f} ms late; the figures count from the due times\n",
               summary.worst_send_lag_ms);
  }
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

// 0, or the exit code after a message.
int make_plan(const ServeFlags& flags, LoadPlan& plan) {
  for (const std::string& text : flags.urls) {
    auto url = wire::Url::parse(text);
    if (!url) return complain_usage(url.error().message());
    plan.targets.push_back(std::move(*url));
  }
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
  plan.max_tokens = flags.max_tokens;
  plan.ignore_eos = !flags.stop_at_eos;
  plan.seed = flags.seed;
  plan.deadline = flags.deadline;
  plan.api_key = flags.api_key;
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
  if (const int failed = make_plan(flags, plan); failed != 0) return failed;
  std::ofstream file;
  if (!flags.json.empty()) {
    file.open(flags.json);
    if (!file) return cannot_write(flags.json);
  }
  const std::vector<LoadRecord> records = run_load(plan);
  const Summary summary = summarise(records);
  const ordered_json report = report_of(flags, plan, records, summary);
  const std::string text = report.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  if (file.is_open()) file << text << '\n';
  if (flags.as_json && flags.json.empty()) {
    fmt::print("{}\n", text);
  } else {
    print_table(flags, records, summary);
  }
  if (file.is_open() && !file.flush()) return cannot_write(flags.json);
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
  serve->add_option("--rate", flags->rate, "Requests a second, Poisson arrivals")
      ->required()
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
