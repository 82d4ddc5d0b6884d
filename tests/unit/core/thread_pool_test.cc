#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <new>
#include <numeric>
#include <stdexcept>

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

TEST(ThreadPool, AnExceptionOnAnyThreadReachesTheCallerOnceAllHaveFinished) {
  for (const int threads : {1, 4}) {
    ThreadPool pool({.threads = threads, .pin = false});
    for (int round = 0; round < 200; ++round) {
      const int thrower = round % threads;
      std::atomic<int> finished{0};
      const auto job = [&](int thread) {
        if (thread == thrower) throw std::runtime_error("short of memory");
        finished.fetch_add(1);
      };
      EXPECT_THROW(pool.run(job), std::runtime_error);
      EXPECT_EQ(finished.load(), threads - 1);
      // The next job knows nothing of it.
      std::atomic<int> calls{0};
      pool.run([&](int) { calls.fetch_add(1); });
      EXPECT_EQ(calls.load(), threads);
    }
  }
}

TEST(ThreadPool, ParallelForPassesAnExceptionOn) {
  ThreadPool pool({.threads = 3, .pin = false});
  EXPECT_THROW(pool.parallel_for(100, 1,
                                 [](std::int64_t, std::int64_t, int) {
                                   throw std::bad_alloc();  // on all threads at once
                                 }),
               std::bad_alloc);
}

TEST(ThreadPool, ThreadsAreBoundOnlyWhereTheyHaveAllCores) {
  EXPECT_FALSE(pinning_is_safe(usable_cores() - 1));
  EXPECT_FALSE(pinning_is_safe(static_cast<int>(std::thread::hardware_concurrency()) + 1));
}

TEST(UsableCores, IsAtLeastOneAndNoMoreThanTheMachineHas) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace shoal
