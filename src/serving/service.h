// A worker's HTTP service: listens at once, answers 503 while the model loads, then serves until drained.
//
// Thread-safety: all functions belong to the owner's thread; requests are answered meanwhile on others.
// Ownership: owns the HTTP server and, once given, the worker. Destruction: server first, then worker.
// Invariants: a route that needs the model answers 503 until set_worker(); /health is 200 only while work
//   that waits makes progress.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/expected.h"
#include "serving/api_keys.h"
#include "serving/worker.h"
#include "wire/http_server.h"
#include "wire/worker_report.h"

namespace shoal::serving {

struct ServiceOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  ApiKeys keys;
  wire::HttpServerOptions http;
};

class Service {
 public:
  // Listens; the port in use is port() (0 in the options takes a free one).
  static Expected<std::unique_ptr<Service>> start(ServiceOptions options);
  ~Service();

  std::uint16_t port() const { return port_; }
  // Once.
  void set_worker(std::unique_ptr<Worker> worker);

  // What it says of itself to gateways; once it has its worker.
  wire::WorkerReport report() const;

  // Refuses new requests with 503, lets the running ones finish until the deadline, then cuts them. True
  // where none had to be cut.
  bool drain(std::chrono::milliseconds deadline);

 private:
  explicit Service(ServiceOptions options);
  void add_routes();

  ServiceOptions options_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Worker> worker_;
  std::atomic<Worker*> ready_{nullptr};
  std::atomic<bool> draining_{false};
  std::unique_ptr<wire::HttpServer> server_;
};

}  // namespace shoal::serving
