#include "serving/session_registry.h"

#include <gtest/gtest.h>

#include "serving/generation_session.h"

namespace shoal::serving {
namespace {

using Admission = SessionRegistry::Admission;

TEST(SessionRegistry, ANameIsTakenUntilItsSessionEnds) {
  SessionRegistry registry;
  EXPECT_EQ(registry.admit({"a", {}}, 1, {}), Admission::kAdmitted);
  EXPECT_EQ(registry.admit({"a", {}}, 2, {}), Admission::kNameTaken);
  EXPECT_EQ(registry.admit({"b", {}}, 3, {}), Admission::kAdmitted);
  registry.remove({"a", {}}, {});
  EXPECT_EQ(registry.admit({"a", {}}, 4, {}), Admission::kAdmitted);
}

TEST(SessionRegistry, ASecondTryAtAnAnswerTakesItsNames) {
  SessionRegistry registry;
  const auto session = [] {
    return std::shared_ptr<GenerationSession>(std::shared_ptr<int>(std::make_shared<int>()), nullptr);
  };
  const auto first = session(), second = session();
  EXPECT_EQ(registry.admit({"a", "cmpl-1"}, 1, first), Admission::kAdmitted);
  EXPECT_EQ(registry.admit({"a", "cmpl-2"}, 2, second), Admission::kNameTaken);
  EXPECT_EQ(registry.admit({"a", "cmpl-1"}, 3, second), Admission::kAdmitted);
  registry.remove({"a", "cmpl-1"}, first);
  EXPECT_EQ(registry.admit({"a", "cmpl-3"}, 4, first), Admission::kNameTaken) << "the second's still";
  registry.remove({"a", "cmpl-1"}, second);
  EXPECT_EQ(registry.admit({"a", "cmpl-3"}, 5, first), Admission::kAdmitted);
}

TEST(SessionRegistry, NoNameIsNeverTaken) {
  SessionRegistry registry;
  EXPECT_EQ(registry.admit({"", {}}, 1, {}), Admission::kAdmitted);
  EXPECT_EQ(registry.admit({"", {}}, 2, {}), Admission::kAdmitted);
  EXPECT_FALSE(registry.abort("", 2));
  EXPECT_EQ(registry.admit({"", {}}, 2, {}), Admission::kAdmitted);
}

TEST(SessionRegistry, AnAbortReachesWhatHasNotBeenReadAndNothingLater) {
  SessionRegistry registry;
  EXPECT_FALSE(registry.abort("late", 5)) << "nobody runs under it";
  EXPECT_EQ(registry.admit({"other", {}}, 3, {}), Admission::kAdmitted);
  EXPECT_EQ(registry.admit({"late", {}}, 4, {}), Admission::kAborted);
  EXPECT_EQ(registry.admit({"late", {}}, 6, {}), Admission::kAdmitted) << "accepted after the abort";
}

TEST(SessionRegistry, AnAbortReachesASecondRequestOfARunningName) {
  SessionRegistry registry;
  EXPECT_EQ(registry.admit({"a", {}}, 1, {}), Admission::kAdmitted);
  registry.abort("a", 2);
  registry.remove({"a", {}}, {});
  EXPECT_EQ(registry.admit({"a", {}}, 2, {}), Admission::kAborted) << "it waited to be read";
  EXPECT_EQ(registry.admit({"a", {}}, 3, {}), Admission::kAdmitted);
}

TEST(SessionRegistry, AbortsOutOfTheirOrderReachNoLaterRequest) {
  SessionRegistry registry;
  registry.abort("y", 7);
  registry.abort("x", 5);  // asked for its number first
  EXPECT_EQ(registry.admit({"x", {}}, 6, {}), Admission::kAdmitted);
  EXPECT_EQ(registry.admit({"y", {}}, 7, {}), Admission::kAborted);
}

TEST(SessionRegistry, AbortingAllReachesNamelessRequestsToo) {
  SessionRegistry registry;
  registry.abort_unread(7);
  EXPECT_TRUE(registry.aborts_all(7));
  EXPECT_FALSE(registry.aborts_all(8));
  EXPECT_EQ(registry.admit({"", {}}, 7, {}), Admission::kAborted);
  EXPECT_EQ(registry.admit({"a", {}}, 6, {}), Admission::kAborted);
  EXPECT_EQ(registry.admit({"a", {}}, 8, {}), Admission::kAdmitted);
}

TEST(SessionRegistry, AbortsOfNamesThatNobodyHasAreBounded) {
  SessionRegistry registry;
  for (int i = 0; i < 10'000; ++i) registry.abort(std::to_string(i), 1);
  EXPECT_EQ(registry.admit({"0", {}}, 1, {}), Admission::kAdmitted) << "the oldest are forgotten";
  EXPECT_EQ(registry.admit({"9999", {}}, 1, {}), Admission::kAborted);
}

}  // namespace
}  // namespace shoal::serving
