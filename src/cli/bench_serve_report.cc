#include "cli/bench_serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shoal::cli {
namespace {

using nlohmann::ordered_json;

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

ordered_json to_json(const Percentiles& p) {
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"max", p.max}};
}

void print_row(std::string_view name, const Percentiles& p) {
  fmt::print("{:<22}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n", name, p.p50, p.p90, p.p99, p.max);
}

std::string class_of(const LoadRecord& record, const policy::ClassLimits& limits) {
  return policy::name_of(policy::classify(record.prompt_tokens, record.completion_tokens, limits));
}

constexpr int kPanelWidth = 430;
constexpr int kPanelHeight = 300;
constexpr double kLeastMs = 0.1;

// One panel: curves of the share of values below each time, over a logarithmic axis of milliseconds.
class Panel {
 public:
  Panel(std::string title, int left, double most_ms)
      : title_(std::move(title)),
        left_(left),
        decades_(std::max(1.0, std::ceil(std::log10(most_ms / kLeastMs)))) {}

  std::string axes(double bound_ms) const {
    std::string out = fmt::format("<text x='{}' y='40' class='title'>{}</text>\n", left_, title_);
    for (int decade = 0; decade <= static_cast<int>(decades_); ++decade) {
      const double ms = kLeastMs * std::pow(10, decade);
      out += fmt::format(
          "<line x1='{0:.1f}' x2='{0:.1f}' y1='60' y2='{1}' class='grid'/>\n<text x='{0:.1f}' y='{2}' "
          "class='tick' text-anchor='middle'>{3:g} ms</text>\n",
          x(ms), 60 + kPanelHeight, 78 + kPanelHeight, ms);
    }
    for (const double share : {0.0, 0.5, 0.9, 1.0})
      out += fmt::format(
          "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' class='grid'/>\n<text x='{}' y='{:.1f}' "
          "class='tick' text-anchor='end'>{:g} %</text>\n",
          left_, left_ + kPanelWidth, y(share), y(share), left_ - 6, y(share) + 4, 100 * share);
    if (bound_ms > 0)
      out += fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='60' y2='{1}' class='bound'/>\n", x(bound_ms),
                         60 + kPanelHeight);
    return out;
  }

  std::string curve(std::vector<double> seconds, const char* colour) const {
    if (seconds.empty()) return {};
    std::sort(seconds.begin(), seconds.end());
    std::string points;
    const std::size_t step = std::max<std::size_t>(1, seconds.size() / 400);
    for (std::size_t i = 0; i < seconds.size(); i += step)
      points += fmt::format("{:.1f},{:.1f} ", x(seconds[i] * 1000),
                            y(static_cast<double>(i + 1) / static_cast<double>(seconds.size())));
    points += fmt::format("{:.1f},{:.1f}", x(seconds.back() * 1000), y(1));
    return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>\n", points, colour);
  }

 private:
  double x(double ms) const {
    return left_ +
           kPanelWidth * std::clamp(std::log10(std::max(ms, kLeastMs) / kLeastMs) / decades_, 0.0, 1.0);
  }
  static double y(double share) { return 60 + kPanelHeight * (1 - share); }

  std::string title_;
  int left_;
  double decades_;
};

std::vector<double> gaps_of(const LoadRecord& record) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < record.tokens.size(); ++i)
    gaps.push_back(record.tokens[i] - record.tokens[i - 1]);
  return gaps;
}

}  // namespace

bool LoadPromise::kept_by(const LoadRecord& record) const {
  if (!record.error.empty()) return false;
  if (ttft_ms > 0 && (record.tokens.front() - record.due) * 1000 > ttft_ms) return false;
  const auto gaps = static_cast<double>(record.tokens.size()) - 1;
  return gap_ms <= 0 || gaps < 1 || (record.tokens.back() - record.tokens.front()) / gaps * 1000 <= gap_ms;
}

LoadSummary summarise(const std::vector<const LoadRecord*>& records, const LoadPromise& promise) {
  LoadSummary summary;
  std::vector<double> ttft, gaps, e2e;
  for (const LoadRecord* each : records) {
    const LoadRecord& record = *each;
    ++summary.requests;
    summary.seconds = std::max(summary.seconds, record.end);
    summary.worst_send_lag_ms = std::max(summary.worst_send_lag_ms, (record.sent - record.due) * 1000);
    if (!record.error.empty()) {
      ++summary.errors[record.error];
      continue;
    }
    ++summary.answered;
    summary.kept += promise.kept_by(record) ? 1 : 0;
    summary.prompt_tokens += record.prompt_tokens;
    summary.cached_tokens += record.cached_tokens;
    summary.completion_tokens += record.completion_tokens;
    ttft.push_back(record.tokens.front() - record.due);
    e2e.push_back(record.end - record.due);
    for (const double gap : gaps_of(record)) gaps.push_back(gap);
  }
  summary.ttft_ms = percentiles_of(std::move(ttft));
  summary.gap_ms = percentiles_of(std::move(gaps));
  summary.e2e_ms = percentiles_of(std::move(e2e));
  return summary;
}

std::map<std::string, LoadSummary> summarise_by_class(const std::vector<LoadRecord>& records,
                                                      const LoadPromise& promise,
                                                      const policy::ClassLimits& limits) {
  std::map<std::string, std::vector<const LoadRecord*>> by_class;
  for (const LoadRecord& record : records) {
    if (record.error.empty()) by_class[class_of(record, limits)].push_back(&record);
  }
  std::map<std::string, LoadSummary> summaries;
  for (const auto& [name, members] : by_class) summaries[name] = summarise(members, promise);
  return summaries;
}

ordered_json figures(const LoadSummary& summary, const LoadPromise& promise) {
  ordered_json out = {
      {"ttft_ms", to_json(summary.ttft_ms)},
      {"token_gap_ms", to_json(summary.gap_ms)},
      {"e2e_ms", to_json(summary.e2e_ms)},
      {"requests_per_s", summary.per_second(static_cast<double>(summary.answered))},
      {"output_tokens_per_s", summary.per_second(static_cast<double>(summary.completion_tokens))},
      {"prompt_tokens_per_s", summary.per_second(static_cast<double>(summary.prompt_tokens))}};
  if (promise.any()) {
    out["goodput_requests_per_s"] = summary.per_second(static_cast<double>(summary.kept));
    out["kept_share"] =
        summary.requests == 0 ? 0 : static_cast<double>(summary.kept) / static_cast<double>(summary.requests);
  }
  return out;
}

void print_load_table(const LoadSummary& all, const std::map<std::string, LoadSummary>& classes,
                      const LoadPromise& promise, double rate) {
  fmt::print("{} requests at {:.4g} a second, {} answered, {} failed, {:.1f} s\n", all.requests, rate,
             all.answered, all.requests - all.answered, all.seconds);
  for (const auto& [error, count] : all.errors) fmt::print("  {} x {}\n", count, error);
  fmt::print("{:<22}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "p50", "p90", "p99", "max");
  print_row("time to first token", all.ttft_ms);
  print_row("gap between tokens", all.gap_ms);
  print_row("whole answer", all.e2e_ms);
  if (classes.size() > 1) {
    for (const auto& [name, summary] : classes) {
      print_row(fmt::format("{}: first token", name), summary.ttft_ms);
      print_row(fmt::format("{}: gap", name), summary.gap_ms);
    }
  }
  fmt::print("output {:.1f} tokens/s, prompts {:.1f} tokens/s ({} of {} from cache), {:.2f} requests/s\n",
             all.per_second(static_cast<double>(all.completion_tokens)),
             all.per_second(static_cast<double>(all.prompt_tokens)), all.cached_tokens, all.prompt_tokens,
             all.per_second(static_cast<double>(all.answered)));
  if (promise.any()) {
    const auto share = [](const LoadSummary& of) {
      return of.requests == 0 ? 0 : 100.0 * static_cast<double>(of.kept) / static_cast<double>(of.requests);
    };
    fmt::print("goodput {:.2f} requests/s: {:.1f} % kept the promised times\n",
               all.per_second(static_cast<double>(all.kept)), share(all));
    if (classes.size() > 1) {
      for (const auto& [name, summary] : classes)
        fmt::print("  {}: {:.1f} % of {}\n", name, share(summary), summary.requests);
    }
  }
  if (all.worst_send_lag_ms > 20) {
    fmt::print("note: this program sent up to {:.0f} ms late; the figures count from the due times\n",
               all.worst_send_lag_ms);
  }
}

std::string load_svg(const std::vector<LoadRecord>& records, const policy::ClassLimits& limits,
                     const LoadPromise& promise) {
  std::map<std::string, std::vector<double>> ttft, gaps;
  double most_ttft = 1, most_gap = 1;
  for (const LoadRecord& record : records) {
    if (!record.error.empty()) continue;
    const std::string name = class_of(record, limits);
    ttft[name].push_back(record.tokens.front() - record.due);
    most_ttft = std::max(most_ttft, ttft[name].back() * 1000);
    for (const double gap : gaps_of(record)) {
      gaps[name].push_back(gap);
      most_gap = std::max(most_gap, gap * 1000);
    }
  }
  static const std::map<std::string, const char*> kColours = {
      {"chat", "#2b6cb0"}, {"retrieval", "#c05621"}, {"generation", "#2f855a"}, {"analysis", "#6b46c1"}};
  const Panel first("time to first token", 70, most_ttft);
  const Panel second("gap between tokens", 590, most_gap);
  std::string out =
      "<svg xmlns='http://www.w3.org/2000/svg' width='1060' height='430' font-family='sans-serif'>\n"
      "<style>.title{font-size:16px}.tick{font-size:12px;fill:#555}.grid{stroke:#ddd}.bound{stroke:#c53030;"
      "stroke-dasharray:4}</style>\n<rect width='1060' height='430' fill='white'/>\n";
  out += first.axes(promise.ttft_ms) + second.axes(promise.gap_ms);
  int at = 70;
  for (const auto& [name, values] : ttft) {
    const char* colour = kColours.at(name);
    out += first.curve(values, colour) + second.curve(gaps[name], colour);
    out += fmt::format(
        "<rect x='{}' y='402' width='14' height='14' fill='{}'/><text x='{}' y='414' class='tick'>{} "
        "({})</text>\n",
        at, colour, at + 20, name, values.size());
    at += 150;
  }
  return out + "</svg>\n";
}

}  // namespace shoal::cli
