#include "serving/text_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

namespace shoal::serving {
namespace {

TEST(TextThread, NumbersTasksInTheOrderOfTheirAcceptance) {
  std::vector<std::uint64_t> numbers;
  {
    TextThread text(100);
    EXPECT_EQ(text.last_posted(), 0U);
    for (std::uint64_t i = 1; i <= 3; ++i) {
      EXPECT_TRUE(text.post([&] { numbers.push_back(text.current()); }));
      EXPECT_EQ(text.last_posted(), i);
    }
  }
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(TextThread, RunsTasksInOrder) {
  std::vector<int> order;
  {
    TextThread text(100);
    for (int i = 0; i < 100; ++i) {
      while (!text.post([&order, i] { order.push_back(i); })) {
      }
    }
  }
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(TextThread, RefusesWhatDoesNotFitItsQueue) {
  TextThread text(2);
  std::promise<void> started;
  std::promise<void> release;
  ASSERT_TRUE(text.post([&] {
    started.set_value();
    release.get_future().wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(text.post([] {}));
  EXPECT_TRUE(text.post([] {}));
  EXPECT_FALSE(text.post([] {}));
  release.set_value();
}

TEST(TextThread, RefusesBytesBeyondItsBoundButTakesOneLargeTask) {
  TextThread text(100, 1000);
  std::promise<void> started;
  std::promise<void> release;
  ASSERT_TRUE(text.post(
      [&] {
        started.set_value();
        release.get_future().wait();
      },
      5000));
  started.get_future().wait();
  EXPECT_FALSE(text.post([] {}, 1)) << "what runs counts until it has ended";
  EXPECT_TRUE(text.post([] {}, 0));
  release.set_value();
}

TEST(TextThread, GoesOnAfterATaskThatThrows) {
  std::promise<void> after;
  TextThread text(4);
  ASSERT_TRUE(text.post([] { throw std::runtime_error("a task's own failure"); }));
  ASSERT_TRUE(text.post([&] { after.set_value(); }));
  after.get_future().wait();
}

TEST(TextThread, RunsOutWhatItAcceptedBeforeItEnds) {
  int done = 0;
  {
    TextThread text(8);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(text.post([&done] { ++done; }));
  }
  EXPECT_EQ(done, 8);
}

}  // namespace
}  // namespace shoal::serving
