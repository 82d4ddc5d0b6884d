#include "wire/metrics_text.h"

#include <gtest/gtest.h>

#include <thread>

namespace shoal::wire {
namespace {

TEST(MetricsRegistry, WritesFamiliesWithHelpAndType) {
  MetricsRegistry registry;
  registry.counter("shoal_requests_total", "Requests\nanswered", {{"reason", "a\"b\\c\n"}}).add(3);
  registry.counter("shoal_requests_total", "Requests\nanswered", {{"reason", "x"}}).add();
  registry.gauge("shoal_waiting", "Waiting").set(2.5);
  EXPECT_EQ(registry.text(),
            "# HELP shoal_requests_total Requests\\nanswered\n"
            "# TYPE shoal_requests_total counter\n"
            "shoal_requests_total{reason=\"a\\\"b\\\\c\\n\"} 3\n"
            "shoal_requests_total{reason=\"x\"} 1\n"
            "# HELP shoal_waiting Waiting\n"
            "# TYPE shoal_waiting gauge\n"
            "shoal_waiting 2.5\n");
  EXPECT_EQ(registry.faults(), 0);
}

TEST(MetricsRegistry, HistogramsAreCumulativeAndEndWithInf) {
  MetricsRegistry registry;
  Histogram& seconds = registry.histogram("t_seconds", "T", {0.1, 1}, {{"m", "x"}});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) seconds.observe(value);
  const std::string text = registry.text();
  EXPECT_NE(text.find("t_seconds_bucket{m=\"x\",le=\"0.1\"} 2\n"
                      "t_seconds_bucket{m=\"x\",le=\"1\"} 3\n"
                      "t_seconds_bucket{m=\"x\",le=\"+Inf\"} 4\n"
                      "t_seconds_sum{m=\"x\"} 7.65\n"
                      "t_seconds_count{m=\"x\"} 4\n"),
            std::string::npos)
      << text;
}

TEST(MetricsRegistry, TheSameNameAndLabelsAreOneMetric) {
  MetricsRegistry registry;
  Counter& first = registry.counter("a_total", "A", {{"l", "1"}});
  EXPECT_EQ(&first, &registry.counter("a_total", "A", {{"l", "1"}}));
  EXPECT_NE(&first, &registry.counter("a_total", "A", {{"l", "2"}}));
}

TEST(MetricsRegistry, AWrongRegistrationWorksAndIsNotShown) {
  MetricsRegistry registry;
  registry.counter("bad name", "x").add();
  registry.counter("9x", "x").add();
  registry.gauge("g", "x", {{"le", "1"}}).set(1);
  registry.gauge("g", "x", {{"__a", "1"}}).set(1);
  EXPECT_EQ(registry.text(), "");
  registry.counter("ok_total", "x").add();
  registry.gauge("ok_total", "x").set(9);
  registry.counter("ok_total", "another help").add(9);
  EXPECT_EQ(registry.faults(), 6);
  EXPECT_EQ(registry.text(), "# HELP ok_total x\n# TYPE ok_total counter\nok_total 1\n");
}

TEST(MetricsRegistry, CountsFromManyThreadsWhileItIsRead) {
  MetricsRegistry registry;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&registry] {
      for (int i = 0; i < 1000; ++i) {
        registry.counter("c_total", "C").add();
        registry.histogram("h", "H", {1, 2, 3}).observe(i % 5);
      }
    });
  }
  for (int i = 0; i < 50; ++i) EXPECT_NO_FATAL_FAILURE(registry.text());
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(registry.text().find("c_total 4000\n"), std::string::npos);
  EXPECT_NE(registry.text().find("h_count 4000\n"), std::string::npos);
}

TEST(MetricsWriter, SaysSpecialNumbersAsPrometheusDoes) {
  MetricsWriter out;
  out.family("x", "X", MetricType::kGauge);
  out.sample({}, 1.0 / 0.0);
  out.sample({}, -1.0 / 0.0);
  out.sample({}, 12345678901.0);
  EXPECT_TRUE(out.text().ends_with("x +Inf\nx -Inf\nx 12345678901\n"));
}

}  // namespace
}  // namespace shoal::wire
