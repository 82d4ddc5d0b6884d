#include "serving/service.h"

#include "serving/admin_routes.h"
#include "serving/openai_routes.h"
#include "serving/report_of_worker.h"
#include "wire/api_error.h"

namespace shoal::serving {
namespace {

// What scrapers and load balancers ask without a key; everything else needs one where keys are set.
bool is_open(std::string_view path) { return path == "/health" || path == "/metrics"; }

}  // namespace

Service::Service(ServiceOptions options) : options_(std::move(options)) {}

Expected<std::unique_ptr<Service>> Service::start(ServiceOptions options) {
  std::unique_ptr<Service> service(new Service(std::move(options)));
  wire::HttpServerOptions http = service->options_.http;
  if (service->options_.keys.required()) {
    http.admit =
        [keys = service->options_.keys](const wire::HttpRequest& head) -> std::optional<wire::HttpReply> {
      if (is_open(head.path) || keys.admits(head.header("authorization").value_or(""))) return std::nullopt;
      return wire::unauthorized_reply();
    };
  }
  service->server_ = std::make_unique<wire::HttpServer>(std::move(http));
  service->add_routes();
  SHOAL_ASSIGN(port, service->server_->listen(service->options_.host, service->options_.port));
  service->port_ = port;
  return service;
}

Service::~Service() {
  // Connections end before the engine they call into, and the engine before the server object its last events
  // may still name.
  if (server_ != nullptr) server_->shutdown(std::chrono::milliseconds(0));
  worker_.reset();
}

void Service::set_worker(std::unique_ptr<Worker> worker) {
  worker_ = std::move(worker);
  ready_.store(worker_.get(), std::memory_order_release);
}

void Service::add_routes() {
  auto with_worker = [this](auto handler) {
    return [this, handler](wire::HttpRequest request, wire::ResponsePtr response) {
      Worker* worker = ready_.load(std::memory_order_acquire);
      if (worker == nullptr) {
        response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, "the model is being loaded")));
      } else {
        handler(*worker, std::move(request), std::move(response));
      }
    };
  };
  auto accepting = [this, with_worker](auto handler) {
    return [this, inner = with_worker(handler)](wire::HttpRequest request, wire::ResponsePtr response) {
      if (draining_.load(std::memory_order_relaxed)) {
        response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, "this server is shutting down")));
      } else {
        inner(std::move(request), std::move(response));
      }
    };
  };

  server_->route("POST", "/v1/chat/completions", accepting(handle_chat_completion));
  server_->route("POST", "/v1/completions", accepting(handle_completion));
  server_->route("GET", "/v1/models", with_worker(handle_models));
  server_->route("GET", "/v1/models/*", with_worker(handle_model));
  server_->route("POST", "/tokenize", with_worker(handle_tokenize));
  server_->route("POST", "/detokenize", with_worker(handle_detokenize));
  server_->route(
      "GET", "/health",
      [this, loaded = with_worker(handle_health)](wire::HttpRequest request, wire::ResponsePtr response) {
        if (draining_.load(std::memory_order_relaxed)) {
          response->respond(
              wire::error_reply(Status(ErrorCode::kUnavailable, "this server is shutting down")));
        } else {
          loaded(std::move(request), std::move(response));
        }
      });
  server_->route("POST", "/abort_request", with_worker(handle_abort));
  server_->route("POST", "/flush_cache", with_worker(handle_flush_cache));
  server_->route("GET", "/get_server_info", with_worker(handle_server_info));
  server_->route("GET", "/metrics", with_worker(handle_metrics));
  server_->route(
      "GET", wire::kWorkerReportPath,
      with_worker([this](Worker& worker, const wire::HttpRequest&, const wire::ResponsePtr& response) {
        const bool draining = draining_.load(std::memory_order_relaxed);
        response->respond(200, "application/json", report_of(worker, draining).to_json());
      }));
}

wire::WorkerReport Service::report() const {
  return report_of(*worker_, draining_.load(std::memory_order_relaxed));
}

bool Service::drain(std::chrono::milliseconds deadline) {
  draining_.store(true, std::memory_order_relaxed);
  const TimePoint end = now() + deadline;
  const bool finished = worker_ == nullptr || worker_->engine->drain(end);
  // What the engine has finished must still be written: at least two seconds, also when the deadline is past.
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - now());
  const bool written = server_->shutdown(std::max(left, std::chrono::milliseconds(2000)));
  return finished && written;
}

}  // namespace shoal::serving
