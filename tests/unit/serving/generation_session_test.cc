#include "serving/generation_session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "serving/serving_rig.h"
#include "wire/raw_client.h"
#include "wire/response_state.h"

namespace shoal::serving {
namespace {

engine::GenerateRequest request_of(const std::string& rid, std::int32_t max_tokens) {
  engine::GenerateRequest request;
  request.rid = rid;
  request.prompt = {5};
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// The abort of all comes when the prompts have been submitted and the session has not started yet: it refuses
// what is unread, and what it would cancel in the engine may not have been there when it looked.
TEST(GenerationSession, AnAbortOfAllReachesARequestThatIsBeingStarted) {
  // The engine thread stays in another request's sink, so that this one cannot end before the abort.
  std::atomic<bool> held{false};
  std::promise<void> released;
  const auto worker = micro_worker();
  engine::GenerateRequest other = request_of("other", 1);
  ASSERT_TRUE(worker->engine
                  ->submit(std::move(other),
                           [&held, release = released.get_future().share()](engine::OutputEvent&&) {
                             held = true;
                             release.wait_for(wire::kPatience);
                           })
                  .ok());
  EXPECT_TRUE(wire::eventually([&] { return held.load(); }));

  std::string sent;
  bool ended = false;
  wire::ResponseState::Traits traits;
  traits.max_backlog = std::size_t{1} << 20;
  const auto state = std::make_shared<wire::ResponseState>(
      traits, [&worker] { worker->sessions->abort_unread(1); });  // at the head of the stream
  std::vector<SessionPrompt> prompts;
  prompts.push_back({request_of("a", kContext - 1), {}});
  GenerationSession::Options options;
  options.stream = true;
  options.number = 1;
  GenerationSession::start(*worker->engine, *worker->sessions, std::make_shared<wire::ResponseWriter>(state),
                           make_completion_format({}, false, 1), std::move(prompts), options);
  released.set_value();
  EXPECT_TRUE(wire::eventually([&] {
    const auto batch = state->take();
    sent += batch.bytes;
    state->wrote(batch.bytes.size());
    ended = ended || batch.finished;
    return ended;
  }));
  EXPECT_NE(sent.find(R"("finish_reason":"abort")"), std::string::npos) << sent;
}

}  // namespace
}  // namespace shoal::serving
