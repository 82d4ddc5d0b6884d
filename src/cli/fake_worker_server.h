// One worker without a model: the routes, streams, notes and reports of a real one in front of a FakeEngine.
//
// Thread-safety: of its loop, but for construction, listen() and shutdown(), which belong to the owner.
// Ownership: owns its HTTP server and engine; refers to loop and client.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "cli/fake_answer.h"
#include "cli/fake_engine.h"
#include "cli/fake_rooms.h"
#include "core/expected.h"
#include "serving/gateway_registration.h"
#include "wire/http_server.h"
#include "wire/openai_request.h"
#include "wire/worker_report.h"

namespace shoal::cli {

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
  FakeWorkerServer(wire::EventLoop& loop, wire::HttpClient& client, FakeWorkerOptions options);
  ~FakeWorkerServer();

  Expected<std::uint16_t> listen(std::uint16_t port);
  // On the loop.
  wire::WorkerReport report();
  void drain() { draining_ = true; }
  // From another thread.
  bool shutdown(std::chrono::milliseconds patience) { return server_.shutdown(patience); }
  FakeEngine& engine() { return engine_; }

 private:
  void add_routes();
  void generate(const wire::HttpRequest& request, const wire::ResponsePtr& response, bool chat);
  Status read(const wire::HttpRequest& request, bool chat, FakeRequest& wanted) const;

  Status check_rooms(const FakeRequest& wanted) const;
  void abandon(FakeRooms::RoomId room);

  const FakeWorkerOptions options_;
  const std::string instance_;
  FakeEngine engine_;
  FakeRooms rooms_;
  FakeAnswer::Ground ground_;
  std::uint16_t port_ = 0;
  wire::HttpServer server_;
  std::int64_t reports_ = 0;
  std::uint64_t answers_ = 0;
  bool draining_ = false;
  std::unordered_map<std::string, std::weak_ptr<FakeAnswer>> by_rid_;
  std::unordered_map<FakeRooms::RoomId, std::weak_ptr<FakeAnswer>> by_room_;
};

}  // namespace shoal::cli
