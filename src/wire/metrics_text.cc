#include "wire/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/log.h"

namespace shoal::wire {

namespace {

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

bool valid_name(std::string_view name, bool colons) {
  if (name.empty() || digit(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [colons](char c) { return letter(c) || digit(c) || (colons && c == ':'); });
}

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out.push_back(c);
    }
  }
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  // Counts stand as whole numbers, not as 1e+06.
  if (std::trunc(value) == value && std::abs(value) < 1e15) {
    return fmt::format("{}", static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string_view type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace

bool valid_metric_name(std::string_view name) { return valid_name(name, true); }
bool valid_label_name(std::string_view name) {
  return valid_name(name, false) && name != "le" && !name.starts_with("__");
}

void MetricsWriter::family(std::string_view name, std::string_view help, MetricType type) {
  name_ = name;
  text_ += fmt::format("# HELP {} ", name);
  append_escaped(text_, help, false);
  text_ += fmt::format("\n# TYPE {} {}\n", name, type_name(type));
}

void MetricsWriter::sample(const MetricLabels& labels, double value) { line("", labels, {}, value); }

void MetricsWriter::histogram(const MetricLabels& labels, std::span<const double> bounds,
                              std::span<const std::uint64_t> counts, double sum) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    line("_bucket", labels, i < bounds.size() ? number_text(bounds[i]) : "+Inf", static_cast<double>(total));
  }
  line("_sum", labels, {}, sum);
  line("_count", labels, {}, static_cast<double>(total));
}

void MetricsWriter::line(std::string_view suffix, const MetricLabels& labels, std::string_view le,
                         double value) {
  text_ += name_;
  text_ += suffix;
  auto label = [this, first = true](std::string_view name, std::string_view text) mutable {
    text_ += first ? "{" : ",";
    first = false;
    text_ += name;
    text_ += "=\"";
    append_escaped(text_, text, true);
    text_.push_back('"');
  };
  for (const auto& [name, text] : labels) label(name, text);
  if (!le.empty()) label("le", le);
  if (!labels.empty() || !le.empty()) text_.push_back('}');
  text_.push_back(' ');
  text_ += number_text(value);
  text_.push_back('\n');
}

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<std::uint64_t> Histogram::counts() const {
  std::vector<std::uint64_t> counts;
  counts.reserve(counts_.size());
  for (const auto& count : counts_) counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

MetricsRegistry::Family* MetricsRegistry::family_for(std::string_view name, std::string_view help,
                                                     MetricType type, const MetricLabels& labels) {
  const bool labels_valid = std::all_of(labels.begin(), labels.end(),
                                        [](const auto& label) { return valid_label_name(label.first); });
  const auto found = families_.find(name);
  const bool clash = found != families_.end() && (found->second.type != type || found->second.help != help);
  if (!valid_metric_name(name) || !labels_valid || clash) {
    ++faults_;
    log(LogLevel::kError, "metrics.wrong_registration", "name={} clash={}", name, clash);
    return nullptr;
  }
  if (found != families_.end()) return &found->second;
  Family& family = families_[std::string(name)];
  family.help = help;
  family.type = type;
  return &family;
}

Counter& MetricsRegistry::counter(std::string_view name, std::string_view help, const MetricLabels& labels) {
  std::scoped_lock lock(mutex_);
  Family* family = family_for(name, help, MetricType::kCounter, labels);
  if (family == nullptr) return counters_.emplace_back();
  Counter*& metric = family->counters[labels];
  if (metric == nullptr) metric = &counters_.emplace_back();
  return *metric;
}

Gauge& MetricsRegistry::gauge(std::string_view name, std::string_view help, const MetricLabels& labels) {
  std::scoped_lock lock(mutex_);
  Family* family = family_for(name, help, MetricType::kGauge, labels);
  if (family == nullptr) return gauges_.emplace_back();
  Gauge*& metric = family->gauges[labels];
  if (metric == nullptr) metric = &gauges_.emplace_back();
  return *metric;
}

Histogram& MetricsRegistry::histogram(std::string_view name, std::string_view help,
                                      std::vector<double> bounds, const MetricLabels& labels) {
  std::scoped_lock lock(mutex_);
  Family* family = family_for(name, help, MetricType::kHistogram, labels);
  if (family == nullptr) return histograms_.emplace_back(std::move(bounds));
  Histogram*& metric = family->histograms[labels];
  if (metric == nullptr) metric = &histograms_.emplace_back(std::move(bounds));
  return *metric;
}

void MetricsRegistry::write(MetricsWriter& out) const {
  std::scoped_lock lock(mutex_);
  for (const auto& [name, family] : families_) {
    out.family(name, family.help, family.type);
    for (const auto& [labels, metric] : family.counters) out.sample(labels, metric->value());
    for (const auto& [labels, metric] : family.gauges) out.sample(labels, metric->value());
    for (const auto& [labels, metric] : family.histograms) {
      out.histogram(labels, metric->bounds(), metric->counts(), metric->sum());
    }
  }
}

std::string MetricsRegistry::text() const {
  MetricsWriter out;
  write(out);
  return out.take();
}

int MetricsRegistry::faults() const {
  std::scoped_lock lock(mutex_);
  return faults_;
}

}  // namespace shoal::wire
