// One worker without a model: the routes, streams, notes and reports of a real one in front of a FakeEngine.
//
// Thread-safety: of its loop, but for construction, listen() and shutdown(), which belong to the owner.
// Ownership: owns its HTTP server and engine; refers to loop and client.

#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "cli/fake_engine.h"
#include "core/expected.h"
#include "serving/gateway_registration.h"
#include "wire/http_server.h"
#include "wire/openai_request.h"
#include "wire/worker_report.h"

namespace shoal::cli {

// What it does wrong on purpose.
enum class FakeHarm : std::uint8_t {
  kNone,
  kStall,        // after three tokens a stream pauses for good
  kCut,          // after three tokens the connection breaks
  kGarbage,      // events that are none
  kRepeatUsage,  // usage is said twice
  kLieIdle,      // its reports say that it is idle
  kRefuse,       // 503 for every request
};

struct FakeWorkerOptions {
  std::string host = "127.0.0.1";
  std::string role = "both";
  std::string model = "fake";
  bool plain = false;  // an engine of the OpenAI API that gives no ids and no reports
  FakeHarm harm = FakeHarm::kNone;
  FakeEngineOptions engine;
};

class FakeWorkerServer {
 public:
  FakeWorkerServer(wire::EventLoop& loop, FakeWorkerOptions options);
  ~FakeWorkerServer();

  Expected<std::uint16_t> listen(std::uint16_t port);
  // On the loop.
  wire::WorkerReport report();
  void drain() { draining_ = true; }
  // From another thread.
  bool shutdown(std::chrono::milliseconds patience) { return server_.shutdown(patience); }
  FakeEngine& engine() { return engine_; }

 private:
  friend class FakeAnswer;
  struct Wanted;
  void add_routes();
  void generate(const wire::HttpRequest& request, const wire::ResponsePtr& response, bool chat);
  Status read(const wire::HttpRequest& request, bool chat, Wanted& wanted) const;

  const FakeWorkerOptions options_;
  const std::string instance_;
  FakeEngine engine_;
  wire::HttpServer server_;
  std::int64_t reports_ = 0;
  std::uint64_t answers_ = 0;
  bool draining_ = false;
  std::unordered_map<std::string, std::weak_ptr<class FakeAnswer>> by_rid_;
  std::set<std::shared_ptr<class FakeAnswer>> held_;  // that have stalled
};

}  // namespace shoal::cli
