#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shoal {
namespace {

TEST(ThreadPool, RunsTheFunctionOnceOnEveryThread) {
  ThreadPool pool({.threads = 4, .pin = false});
  std::vector<int> calls(4, 0);
  for (int round = 0; round < 1000; ++round)
    pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
  EXPECT_EQ(calls, std::vector<int>(4, 1000));
}

TEST(ThreadPool, WhatThreadsWroteIsVisibleAfterRun) {
  ThreadPool pool({.threads = 3, .spin = std::chrono::microseconds(0), .pin = false});
  std::vector<std::int64_t> values(3, 0);
  std::int64_t expected = 0;
  for (std::int64_t round = 1; round <= 500; ++round) {
    pool.run([&](int thread) { values[static_cast<std::size_t>(thread)] = round * (thread + 1); });
    expected = round * 6;
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), expected);
  }
}

TEST(ThreadPool, ParallelForCoversEveryIndexOnce) {
  ThreadPool pool({.threads = 3, .pin = false});
  for (const std::int64_t n : {0, 1, 7, 64, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
    pool.parallel_for(n, 7, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)].fetch_add(1);
    });
    for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
  }
}

TEST(ThreadPool, OneThreadRunsOnTheCaller) {
  ThreadPool pool({.threads = 1});
  const auto caller = std::this_thread::get_id();
  pool.run([&](int thread) {
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

TEST(ThreadPool, EndsWhileItsThreadsSleep) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool({.threads = 3, .spin = std::chrono::microseconds(0), .pin = false});
    if (i % 2 == 0) pool.run([](int) {});
  }
}

TEST(UsableCores, IsAtLeastOneAndNoMoreThanTheMachineHas) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace shoal
