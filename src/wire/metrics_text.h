// Metrics in Prometheus' text format: written from a snapshot, or counted here by many threads.
//
// Thread-safety: MetricsWriter none. MetricsRegistry and its counters, gauges and histograms: any thread;
//   updates are single atomic operations and never wait for a scrape.
// Ownership: the registry owns its metrics; references to them are good as long as it lives.
// Invariants:
//   1. Names match [a-zA-Z_:][a-zA-Z0-9_:]*, label names [a-zA-Z_][a-zA-Z0-9_]* (and not "le"); values of
//      labels may hold anything and are escaped.
//   2. A family has one type and one help text, and its samples stand together. A registration that breaks 1
//      or 2 is logged, counted by faults() and gives a metric that works but is not shown: a typo must not
//      stop a server.
//   3. A histogram's buckets are cumulative when written and end with le="+Inf", equal to its count.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::wire {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

bool valid_metric_name(std::string_view name);
bool valid_label_name(std::string_view name);

enum class MetricType { kCounter, kGauge, kHistogram };

// Writes families one after the other. Names are the caller's to get right.
class MetricsWriter {
 public:
  // Begins a family.
  void family(std::string_view name, std::string_view help, MetricType type);
  void sample(const MetricLabels& labels, double value);
  // counts: per bucket, not cumulative; one more than bounds, the last for what lies above them all.
  void histogram(const MetricLabels& labels, std::span<const double> bounds,
                 std::span<const std::uint64_t> counts, double sum);

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, const MetricLabels& labels, std::string_view le, double value);

  std::string name_;
  std::string text_;
};

class Counter {
 public:
  // amount: not negative.
  void add(double amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Histogram {
 public:
  // bounds: upper bounds of the buckets, ascending, each included in its bucket.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  std::vector<std::uint64_t> counts() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

class MetricsRegistry {
 public:
  // The same name and labels give the same metric.
  Counter& counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  // bounds count for the first registration of a name and labels.
  Histogram& histogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                       const MetricLabels& labels = {});

  void write(MetricsWriter& out) const;
  std::string text() const;
  // Registrations that were wrong.
  int faults() const;

 private:
  struct Family {
    std::string help;
    MetricType type = MetricType::kCounter;
    std::map<MetricLabels, Counter*> counters;
    std::map<MetricLabels, Gauge*> gauges;
    std::map<MetricLabels, Histogram*> histograms;
  };

  // Null where the registration is wrong. With the mutex held.
  Family* family_for(std::string_view name, std::string_view help, MetricType type,
                     const MetricLabels& labels);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
  std::deque<Counter> counters_;  // deques: metrics must not move
  std::deque<Gauge> gauges_;
  std::deque<Histogram> histograms_;
  int faults_ = 0;
};

}  // namespace shoal::wire
