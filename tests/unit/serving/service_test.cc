#include "serving/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "serving/serving_rig.h"
#include "wire/http_client.h"
#include "wire/raw_client.h"

namespace shoal::serving {
namespace {

using namespace std::chrono_literals;

class ServiceTest : public testing::Test {
 protected:
  void start(ApiKeys keys = {}) {
    ServiceOptions options;
    options.port = 0;
    options.keys = std::move(keys);
    auto started = Service::start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.error().message();
    service = *std::move(started);
  }
  wire::HttpCall call(const std::string& path, std::string body = {}) const {
    wire::HttpCall call;
    call.url = *wire::Url::parse("127.0.0.1:" + std::to_string(service->port()) + path);
    call.method = body.empty() ? "GET" : "POST";
    call.body = std::move(body);
    return call;
  }
  int status(const std::string& path, std::string body = {}) {
    return client.send(call(path, std::move(body)))->status;
  }

  std::unique_ptr<Service> service;
  wire::HttpClient client;
};

constexpr const char* kShort = R"({"prompt":[5,6],"max_tokens":2})";

TEST_F(ServiceTest, Says503UntilTheModelIsThere) {
  start();
  for (const char* path : {"/health", "/v1/models", "/v1/models/x", "/metrics", "/get_server_info"}) {
    EXPECT_EQ(status(path), 503) << path;
  }
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/tokenize", "/abort_request", "/flush_cache"}) {
    EXPECT_EQ(status(path, "{}"), 503) << path;
  }
  EXPECT_EQ(status("/nothing"), 404);
  service->set_worker(micro_worker());
  EXPECT_EQ(status("/health"), 200);
  EXPECT_EQ(status("/v1/completions", kShort), 200);
  EXPECT_EQ(status("/v1/completions", "{}"), 400);
}

TEST_F(ServiceTest, KeysGuardAllButHealthAndMetrics) {
  const auto file = std::filesystem::temp_directory_path() / ("shoal-keys-" + std::to_string(::getpid()));
  std::ofstream(file) << "alpha\n";
  auto keys = ApiKeys::load(file);
  std::filesystem::remove(file);
  ASSERT_TRUE(keys.ok());
  start(*std::move(keys));
  service->set_worker(micro_worker());
  EXPECT_EQ(status("/health"), 200);
  EXPECT_EQ(status("/metrics"), 200);
  EXPECT_EQ(status("/v1/models"), 401);
  EXPECT_EQ(status("/abort_request", "{}"), 401);
  wire::HttpCall known = call("/v1/models");
  known.headers = {{"Authorization", "Bearer alpha"}};
  EXPECT_EQ(client.send(known)->status, 200);
}

TEST_F(ServiceTest, ADrainLetsTheRunningAnswerEndAndTakesNoOther) {
  start();
  service->set_worker(micro_worker());
  std::atomic<bool> begun{false};
  std::string streamed;
  std::promise<Status> ended;
  client.start(call("/v1/completions", R"({"prompt":[5],"max_tokens":200,"ignore_eos":true,"stream":true})"),
               {nullptr,
                [&](std::string_view bytes) {
                  streamed += bytes;
                  begun = true;
                  return true;
                },
                [&](const Status& end) { ended.set_value(end); }});
  EXPECT_TRUE(wire::eventually([&] { return begun.load(); }));
  EXPECT_TRUE(service->drain(20s)) << "nothing was cut";
  EXPECT_TRUE(ended.get_future().get().ok());
  EXPECT_TRUE(streamed.ends_with("data: [DONE]\n\n"));
  EXPECT_FALSE(client.send(call("/health")).ok()) << "nobody listens";
}

// One prompt of a list that fails ends the others: no page is held, and no work goes on for an answer that is
// refused.
TEST_F(ServiceTest, AFailedPromptCancelsItsSiblings) {
  start();
  service->set_worker(micro_worker());
  nlohmann::json body = {{"max_tokens", 200}, {"ignore_eos", true}};
  body["prompt"] = {{5, 6}, {7}, std::vector<int>(kContext + 1, 5), {8}};
  const auto answer = client.send(call("/v1/completions", body.dump()));
  EXPECT_EQ(answer->status, 400);
  EXPECT_NE(answer->body.find("context_length_exceeded"), std::string::npos) << answer->body;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  nlohmann::json info;
  do {
    info = nlohmann::json::parse(client.send(call("/get_server_info"))->body);
  } while (std::chrono::steady_clock::now() < deadline &&
           (info["num_requests_running"] != 0 || info["kv_pages"][0]["held"] != 0));
  EXPECT_EQ(info["num_requests_running"], 0);
  EXPECT_EQ(info["kv_pages"][0]["held"], 0);
  EXPECT_EQ(info["requests_finished_total"], 0) << "the others did not run to their end";
  EXPECT_LT(info["generation_tokens_total"], 300);
}

TEST_F(ServiceTest, ARequestThatWaitsToBeReadCanBeAborted) {
  start();
  auto worker = micro_worker();
  TextThread& text = *worker->text;
  service->set_worker(std::move(worker));
  std::promise<void> busy;
  ASSERT_TRUE(text.post([waits = busy.get_future().share()] { waits.wait(); }));
  std::promise<int> answered;
  wire::HttpCall waiting = call("/v1/completions", R"({"prompt":[5],"max_tokens":200,"rid":"late"})");
  client.start(waiting,
               {[&](int code, const wire::HeaderList&) { answered.set_value(code); }, nullptr, nullptr});
  EXPECT_TRUE(wire::eventually([&] { return text.last_posted() == 2; }));
  EXPECT_EQ(client.send(call("/abort_request", R"({"rid":"late"})"))->body, R"({"cancelled":0})");
  busy.set_value();
  EXPECT_EQ(answered.get_future().get(), 499);
  EXPECT_EQ(client.send(waiting)->status, 200) << "the next of that name runs";
}

}  // namespace
}  // namespace shoal::serving
