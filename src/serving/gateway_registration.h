// Tells gateways that a worker is there, and how it is: a report to each of them every half second.
//
// Thread-safety: of the loop, but for the constructor before start() and the destructor after the loop's end
//   or on it.
// Ownership: refers to loop and client, which must outlive it.
// Invariants: a gateway that does not answer is told again at the next turn; the log says so once, and once
//   when it answers again. At most one report to each is under way.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "wire/event_loop.h"
#include "wire/http_client.h"
#include "wire/url.h"
#include "wire/worker_report.h"

namespace shoal::serving {

struct RegistrationOptions {
  std::vector<wire::Url> gateways;
  std::string key;  // registration_key() of the token that gateways must hold, too
  std::string url;  // where gateways reach the worker
  std::chrono::milliseconds interval{500};
  // Until the first report: a thousand workers started together need not speak together.
  std::chrono::milliseconds offset{0};
};

class GatewayRegistration {
 public:
  GatewayRegistration(wire::EventLoop& loop, wire::HttpClient& client, RegistrationOptions options,
                      std::function<wire::WorkerReport()> report);
  ~GatewayRegistration();
  GatewayRegistration(const GatewayRegistration&) = delete;
  GatewayRegistration& operator=(const GatewayRegistration&) = delete;

  void start();
  // Out of turn: something has changed that gateways should know at once.
  void tell();
  // No more turns; reports under way are called off, so that none is heard after a farewell.
  void stop();
  // What tell() sends, to each gateway.
  std::vector<wire::HttpCall> calls() const;

 private:
  struct Gateway;
  static void tell(const std::shared_ptr<Gateway>& gateway, wire::HttpClient& client, wire::HttpCall call);
  void turn();

  wire::HttpClient& client_;
  const RegistrationOptions options_;
  const std::function<wire::WorkerReport()> report_;
  std::vector<std::shared_ptr<Gateway>> gateways_;
  wire::LoopTimer timer_;
};

// The same for a worker whose HTTP server has threads of its own: with a loop and a client for it alone.
class RegisteredWorker {
 public:
  // report: called on the registration's thread.
  RegisteredWorker(RegistrationOptions options, std::function<wire::WorkerReport()> report);
  // Takes its leave with a last report, which should say that it drains: at most a second for each gateway.
  ~RegisteredWorker();

 private:
  wire::EventLoop loop_;
  wire::HttpClient client_;
  GatewayRegistration registration_;
};

}  // namespace shoal::serving
