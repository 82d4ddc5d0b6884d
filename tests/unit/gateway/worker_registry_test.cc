#include "gateway/worker_registry.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "gateway/admission_queue.h"
#include "gateway/client_keys.h"
#include "gateway/worker_file.h"

namespace shoal::gateway {
namespace {

using namespace std::chrono_literals;

wire::WorkerReport report(std::int64_t sequence, const char* instance = "i") {
  wire::WorkerReport report;
  report.instance = instance;
  report.models = {"m"};
  report.sequence = sequence;
  return report;
}

struct User final : WorkerUser {
  std::vector<std::string> told;
  void on_worker_lost(const std::string& why) override { told.push_back(why); }
};

TEST(WorkerRegistry, AUrlIsOneWorkerHoweverItIsWritten) {
  WorkerRegistry registry;
  const WorkerPtr worker = *registry.add("127.0.0.1:80/v1/", WorkerSource::kStatic);
  EXPECT_EQ(*registry.add("http://127.0.0.1", WorkerSource::kAdmin), worker);
  EXPECT_EQ(registry.workers().size(), 1U);
  EXPECT_FALSE(registry.add("ftp://x", WorkerSource::kStatic).ok());
}

TEST(WorkerRegistry, IsAvailableOnlyWhenItHasSaidSo) {
  WorkerRegistry registry;
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kStatic);
  EXPECT_FALSE(registry.views()[0].available) << "unknown is not up";
  EXPECT_TRUE(registry.serving("m").all.empty());
  registry.apply(worker, report(1), now());
  EXPECT_TRUE(registry.views()[0].available);
  EXPECT_EQ(registry.serving("m").whole.size(), 1U);
  registry.set_draining(worker, true);
  EXPECT_FALSE(registry.views()[0].available);
  registry.set_draining(worker, false);
  auto loading = report(2);
  loading.state = "loading";
  registry.apply(worker, loading, now());
  EXPECT_FALSE(registry.views()[0].available);
  EXPECT_EQ(worker->why, "it is loading");
  registry.apply(worker, report(1), now());
  EXPECT_FALSE(registry.views()[0].available) << "older than what is known";
}

TEST(WorkerRegistry, WorkersAreListedByThePartTheyTake) {
  WorkerRegistry registry;
  const WorkerPtr prefill = *registry.add("a:1", WorkerSource::kStatic);
  const WorkerPtr decode = *registry.add("b:1", WorkerSource::kStatic, {policy::WorkerRole::kDecode});
  auto part = report(1);
  part.role = "prefill";
  part.bootstrap_port = 7000;
  registry.apply(prefill, part, now());
  EXPECT_EQ(registry.serving("m").prefill, std::vector<std::uint32_t>{0});
  EXPECT_EQ(prefill->bootstrap_port, 7000);
  EXPECT_FALSE(registry.answers()) << "nobody would go on with it";
  part.role = "decode";
  registry.apply(decode, part, now());
  EXPECT_EQ(registry.serving("m").decode, std::vector<std::uint32_t>{1});
  EXPECT_TRUE(registry.serving("m").whole.empty());
  EXPECT_TRUE(registry.answers());
  EXPECT_EQ(registry.views()[0].kind, registry.views()[1].kind) << "of one model file";
  registry.apply(prefill, report(2), now());
  EXPECT_EQ(registry.serving("m").whole, std::vector<std::uint32_t>{0}) << "another role";
}

TEST(WorkerRegistry, AWorkerThatSaysAnotherRoleThanItWasNamedInIsNotUsed) {
  WorkerRegistry registry;
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kStatic, {policy::WorkerRole::kPrefill});
  registry.apply(worker, report(1), now());
  EXPECT_FALSE(registry.views()[0].available);
  EXPECT_EQ(worker->why, "it was named as a prefill worker, and says that its role is both");
  EXPECT_FALSE(registry.add("a:1", WorkerSource::kStatic, {policy::WorkerRole::kDecode}).ok());
}

TEST(WorkerRegistry, APlainEngineHasTheRoleItWasNamedIn) {
  WorkerRegistry registry;
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kStatic, {policy::WorkerRole::kPrefill, 9000});
  registry.apply_plain(worker, {"m"}, now());
  EXPECT_TRUE(registry.views()[0].available);
  EXPECT_EQ(registry.serving("m").prefill.size(), 1U);
  EXPECT_EQ(worker->bootstrap_port, 9000);
}

TEST(WorkerRegistry, AProcessThatWasTakenAwayStaysAway) {
  WorkerRegistry registry;
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kRegistered);
  registry.apply(worker, report(1), now());
  registry.dismiss(worker);
  registry.remove(worker, "by an operator");
  EXPECT_TRUE(registry.is_dismissed("http://a:1/", "i"));
  EXPECT_FALSE(registry.is_dismissed("http://a:1/", "successor"));
  EXPECT_TRUE(registry.add("a:1", WorkerSource::kAdmin).ok());
  EXPECT_FALSE(registry.is_dismissed("http://a:1/", "i")) << "an operator's word counts";
}

TEST(WorkerRegistry, WhoDoesNotAnswerIsLeftAloneUntilItSpeaks) {
  WorkerRegistry registry;
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kStatic);
  registry.apply(worker, report(1), now());
  registry.mistrust(worker, {ErrorCode::kCorrupt, "it says what nobody understands"});
  EXPECT_TRUE(registry.views()[0].available);
  registry.mistrust(worker, {ErrorCode::kUnavailable, "connection refused"});
  EXPECT_FALSE(registry.views()[0].available);
  registry.apply(worker, report(2), now());
  EXPECT_TRUE(registry.views()[0].available);
}

TEST(WorkerFile, OnlyARegularFileIsRead) {
  WorkerRegistry registry;
  const std::string pipe = testing::TempDir() + "workers.pipe";
  ::unlink(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, testing::TempDir()})
    EXPECT_EQ(WorkerFile(path).read_first(registry).code(), ErrorCode::kInvalidArgument) << path;
}

TEST(Reservation, IsTakenBackOnceHoweverItEnds) {
  WorkerRegistry registry;
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kStatic);
  registry.apply(worker, report(1), now());
  const auto& view = registry.views()[0];
  {
    Reservation first = registry.reserve(worker, 100, 0, now());
    Reservation second = registry.reserve(worker, 50, 0, now());
    EXPECT_EQ(view.reserved_tokens, 150);
    EXPECT_EQ(view.reserved_since_report, 150);
    EXPECT_EQ(view.in_flight, 2);
    first.first_token();
    first.first_token();
    EXPECT_EQ(view.reserved_tokens, 50);
    registry.apply(worker, report(2), now());
    EXPECT_EQ(view.reserved_since_report, 0) << "what the report can contain counts by the report";
    Reservation moved = std::move(second);
    second.release();
    EXPECT_EQ(view.in_flight, 2);
    moved.release();
    moved.release();
    EXPECT_EQ(view.in_flight, 1);
    Reservation third = registry.reserve(worker, 0, 9, now());
    EXPECT_EQ(view.pages_since_report, 9);
    third.release();
    EXPECT_EQ(view.pages_since_report, 0);
  }
  EXPECT_EQ(view.reserved_tokens, 0);
  EXPECT_EQ(view.reserved_since_report, 0);
  EXPECT_EQ(view.in_flight, 0);
  EXPECT_EQ(view.in_flight_since_report, 0);
}

TEST(WorkerRegistry, UsersAreToldOfALossAndIndexesStayTrue) {
  WorkerRegistry registry;
  const WorkerPtr a = *registry.add("a:1", WorkerSource::kStatic);
  const WorkerPtr b = *registry.add("b:1", WorkerSource::kStatic);
  for (const WorkerPtr& worker : {a, b}) registry.apply(worker, report(1), now());
  User user;
  a->users.insert(&user);
  Reservation held = registry.reserve(a, 10, 0, now());
  Reservation other = registry.reserve(b, 20, 0, now());
  registry.remove(a, "gone");
  EXPECT_EQ(user.told, std::vector<std::string>{"gone"});
  EXPECT_EQ(b->index, 0U);
  held.release();
  EXPECT_EQ(registry.views()[0].reserved_tokens, 20) << "the removed one's load is nobody's";
  User next;
  b->users.insert(&next);
  registry.apply(b, report(1, "successor"), now());
  EXPECT_EQ(next.told.size(), 1U) << "another process on the same port";
  b->users.clear();
  registry.leave(b);
  EXPECT_TRUE(registry.workers().empty());
}

TEST(WorkerRegistry, ALeavingWorkerWhoseSuccessorReportsGoesWithItsLastRequest) {
  WorkerRegistry registry;
  const WorkerPtr a = *registry.add("a:1", WorkerSource::kStatic);
  registry.apply(a, report(1), now());
  struct Last final : WorkerUser {
    WorkerPtr worker;
    Reservation held;
    void on_worker_lost(const std::string&) override {
      worker->users.erase(this);
      held.release();
    }
  } last;
  last.worker = a;
  last.held = registry.reserve(a, 10, 0, now());
  a->users.insert(&last);
  registry.leave(a);
  ASSERT_TRUE(registry.holds(a));
  registry.apply(a, report(1, "successor"), now());
  EXPECT_FALSE(registry.holds(a));
  EXPECT_TRUE(registry.views().empty());
}

TEST(WorkerRegistry, ATrialThatSaysNothingLeavesTheNextItsTurn) {
  WorkerRegistry registry({.failures = 1, .open_seconds = 5});
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kStatic);
  registry.apply(worker, report(1), now());
  registry.failed(worker, now() - 6s);
  registry.tick(now());
  ASSERT_TRUE(registry.views()[0].available) << "half open";
  Reservation trial = registry.reserve(worker, 1, 0, now());
  EXPECT_FALSE(registry.views()[0].available) << "one at a time";
  registry.forgotten(worker);
  EXPECT_TRUE(registry.views()[0].available);
}

TEST(WorkerRegistry, ABreakerKeepsRequestsAway) {
  WorkerRegistry registry({.failures = 2, .open_seconds = 5});
  const WorkerPtr worker = *registry.add("a:1", WorkerSource::kStatic);
  registry.apply(worker, report(1), now());
  registry.failed(worker, now());
  registry.failed(worker, now());
  EXPECT_FALSE(registry.views()[0].available);
  registry.apply(worker, report(2), now());
  EXPECT_FALSE(registry.views()[0].available) << "health does not close it";
  registry.tick(now() + 6s);
  EXPECT_TRUE(registry.views()[0].available) << "half open";
}

TEST(AdmissionQueue, ServesInOrderAndEndsEachWait) {
  AdmissionQueue queue(1, 2, 1000ms);
  const TimePoint begin = now();
  std::vector<int> order;
  std::vector<Ticket> held;
  const auto enter = [&](int number) {
    return queue.enter(begin, [&, number](const Status& status, Ticket ticket) {
      order.push_back(status.ok() ? number : -number);
      if (status.ok()) held.push_back(std::move(ticket));
    });
  };
  EXPECT_EQ(enter(1), 0U);
  const std::uint64_t second = enter(2);
  enter(3);
  enter(4);
  EXPECT_EQ(order, (std::vector<int>{1, -4})) << "the fourth found the queue full";
  queue.leave(second);
  std::exchange(held, {}).clear();  // another may be granted meanwhile
  EXPECT_EQ(order, (std::vector<int>{1, -4, 3}));
  enter(5);
  queue.tick(begin + 999ms);
  EXPECT_EQ(queue.waiting(), 1U);
  queue.tick(begin + 1000ms);
  EXPECT_EQ(order, (std::vector<int>{1, -4, 3, -5}));
  std::exchange(held, {}).clear();  // another may be granted meanwhile
  EXPECT_EQ(queue.running(), 0);
}

TEST(AdmissionQueue, GrantsThatEndAtOnceDoNotNest) {
  AdmissionQueue queue(1, 100'000, 1000ms);
  std::optional<Ticket> held;
  queue.enter(now(), [&](const Status&, Ticket ticket) { held.emplace(std::move(ticket)); });
  int granted = 0, depth = 0, deepest = 0;
  for (int i = 0; i < 100'000; ++i) {
    queue.enter(now(), [&](const Status& status, Ticket ticket) {
      granted += status.ok() ? 1 : 0;
      deepest = std::max(deepest, ++depth);
      ticket.release();
      --depth;
    });
  }
  held.reset();
  EXPECT_EQ(granted, 100'000);
  EXPECT_EQ(deepest, 1);
  EXPECT_EQ(queue.running(), 0);
}

TEST(AdmissionQueue, ATenantHasSoManyPlacesAndNoMore) {
  AdmissionQueue queue(10, 10, 1000ms);
  const auto tenant = std::make_shared<const Tenant>(Tenant{"t", {}, 2, 0});
  auto first = queue.admit(tenant);
  {
    auto second = queue.admit(tenant);
    EXPECT_TRUE(second.ok());
    EXPECT_EQ(queue.admit(tenant).status().code(), ErrorCode::kExhausted);
  }
  EXPECT_TRUE(queue.admit(tenant).ok());
  EXPECT_TRUE(queue.admit(nullptr).ok());
}

TEST(ClientKeys, NamesFileLineAndMistake) {
  const std::string file = testing::TempDir() + "keys.toml";
  const auto load = [&](const std::string& text) {
    std::ofstream(file) << text;
    return ClientKeys::load(file);
  };
  const auto good = load(
      "[[keys]]\nkey = \"0123456789\"\ntenant = \"a\"\nmodels = [\"m\"]\nmax_running = 3\n"
      "expires = 2030-01-31\n");
  ASSERT_TRUE(good.ok()) << good.error().message();
  EXPECT_EQ(good->find("Bearer 0123456789", 0)->max_running, 3);
  EXPECT_EQ(good->find("bearer 0123456789", 1896048000 - 1)->name, "a");
  EXPECT_EQ(good->find("Bearer 0123456789", 1896048000), nullptr) << "2030-01-31 has begun";
  EXPECT_EQ(good->find("Basic 0123456789", 0), nullptr);
  EXPECT_EQ(good->find("", 0), nullptr);
  EXPECT_FALSE(good->find("Bearer 0123456789", 0)->may_use("other"));
  for (const auto& [text, part] :
       {std::pair{"", "holds no [[keys]]"},
        {"[[keys]]\ntenant = \"a\"\n", "'key' or 'sha256'"},
        {"[[keys]]\nkey = \"short\"\ntenant = \"a\"\n", ":2: 'key' must have"},
        {"[[keys]]\nkey = \"0123456789\"\n", "'tenant'"},
        {"[[keys]]\nkey = \"0123456789\"\ntenant = \"a\"\nmodel = [\"x\"]\n", ":4: there is no 'model'"},
        {"keys = 3\n", ":1: only tables"}}) {
    const auto bad = load(text);
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_NE(bad.error().message().find(part), std::string::npos) << bad.error().message();
  }
}

TEST(WorkerReport, ReadsWhatItWritesAndRefusesTheRest) {
  wire::WorkerReport said = report(7);
  said.uncached_tokens = 123;
  said.resumes = true;
  const auto read = wire::WorkerReport::parse(said.to_json());
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->uncached_tokens, 123);
  EXPECT_TRUE(read->resumes);
  for (const char* wrong : {"", "[]", "{}", R"({"protocol":2,"instance":"i"})",
                            R"({"instance":"i","role":"boss"})", R"({"instance":"i","free_pages":-1})",
                            R"({"instance":"i","models":["a",3]})", R"({"instance":"i","running":1e300})"})
    EXPECT_FALSE(wire::WorkerReport::parse(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace shoal::gateway
