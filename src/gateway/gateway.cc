#include "gateway/gateway.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/log.h"
#include "gateway/exchange.h"
#include "gateway/gateway_core.h"
#include "gateway/gateway_routes.h"
#include "gateway/worker_file.h"
#include "gateway/worker_prober.h"
#include "wire/api_error.h"
#include "wire/event_loop.h"
#include "wire/http_server.h"

namespace shoal::gateway {
namespace {

using wire::HttpReply;
using wire::HttpRequest;
using wire::ResponsePtr;

bool is_open(std::string_view path) { return path == "/health" || path == "/metrics"; }

bool is_admin(std::string_view path) {
  return path == "/workers" || path.starts_with("/workers/") || path == "/get_server_info";
}

bool same_key(std::string_view given, const std::string& wanted) {
  const KeyDigest a = digest_of(given);
  const KeyDigest b = digest_of(wanted);
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool from_this_machine(std::string_view remote) {
  return remote.starts_with("127.") || remote.starts_with("::1:") || remote.starts_with("::ffff:127.");
}

}  // namespace

struct Gateway::Impl {
  explicit Impl(GatewayOptions given)
      : core(std::move(given), loop), prober(core.registry, *core.client, core.options.probes), timer(loop) {}

  wire::EventLoop loop;
  GatewayCore core;
  WorkerProber prober;
  std::optional<WorkerFile> file;
  wire::LoopTimer timer;
  std::unique_ptr<wire::HttpServer> users;
  std::unique_ptr<wire::HttpServer> admin;  // where it is apart
  std::uint16_t port = 0;
  std::uint16_t admin_port = 0;

  bool is_admin_key(const HttpRequest& request) const {
    const auto authorization = request.header("authorization");
    if (!core.options.admin_key.empty())
      return same_key(bearer_of(authorization.value_or("")), core.options.admin_key);
    // A process of this machine that speaks for itself: neither a page in its browser nor a proxy, nor one
    // that shows a key and so takes itself for somebody else.
    return from_this_machine(request.remote) && !authorization && !request.header("origin") &&
           !request.header("x-forwarded-for") && !request.header("forwarded");
  }
  bool is_registration(const HttpRequest& request) const {
    return !core.options.registration_key.empty() &&
           same_key(bearer_of(request.header("authorization").value_or("")), core.options.registration_key);
  }

  // Whether the head of a request lets it in; an answer where not.
  std::optional<HttpReply> admit(const HttpRequest& head, bool admin_port_itself) const {
    if (is_open(head.path)) return std::nullopt;
    if (is_admin(head.path)) {
      if (is_admin_key(head) || (head.method == "POST" && head.path == "/workers" && is_registration(head)))
        return std::nullopt;
      if (!core.options.admin_key.empty() || !bearer_of(head.header("authorization").value_or("")).empty())
        return wire::unauthorized_reply();
      return wire::error_reply(403, "invalid_request_error",
                               "the admin API is for this machine's own processes, not for web pages or "
                               "through a proxy, unless the gateway has an admin key");
    }
    if (admin_port_itself || !core.options.keys.required()) return std::nullopt;
    if (tenant_of(head) != nullptr) return std::nullopt;
    return wire::unauthorized_reply();
  }

  std::shared_ptr<const Tenant> tenant_of(const HttpRequest& request) const {
    if (!core.options.keys.required()) return nullptr;
    return core.options.keys.find(request.header("authorization").value_or(""), std::time(nullptr));
  }

  void add_user_routes(wire::HttpServer& server);
  void add_admin_routes(wire::HttpServer& server);
  void tick();
  Status add_named_workers();
  Status listen();
  void end_all();
};

void Gateway::Impl::add_user_routes(wire::HttpServer& server) {
  const auto pass = [this](HttpRequest request, ResponsePtr response) {
    if (core.draining) {
      response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, "this gateway is shutting down")));
      return;
    }
    auto tenant = tenant_of(request);
    // Between its head and its body a key may have expired.
    if (tenant == nullptr && core.options.keys.required())
      return response->respond(wire::unauthorized_reply());
    Exchange::start(core, std::move(request), std::move(response), std::move(tenant));
  };
  for (const char* path : {"/v1/*", "/tokenize", "/detokenize"}) server.route("POST", path, pass);
  const auto models = [this](const HttpRequest& request, const ResponsePtr& response) {
    const auto tenant = tenant_of(request);
    handle_models(core, request, response, tenant.get());
  };
  server.route("GET", "/v1/models", models);
  server.route("GET", "/v1/models/*", models);
  server.route("POST", "/abort_request", [this](const HttpRequest& request, const ResponsePtr& response) {
    handle_abort(core, request, response, admin == nullptr && is_admin_key(request));
  });
  server.route("GET", "/health",
               [this](const HttpRequest&, const ResponsePtr& response) { handle_health(core, response); });
  server.route("GET", "/metrics",
               [this](const HttpRequest&, const ResponsePtr& response) { handle_metrics(core, response); });
}

void Gateway::Impl::add_admin_routes(wire::HttpServer& server) {
  server.route("GET", "/workers", [this](const HttpRequest&, const ResponsePtr& response) {
    handle_list_workers(core, response);
  });
  server.route("POST", "/workers", [this](const HttpRequest& request, const ResponsePtr& response) {
    handle_post_worker(core, request, response, is_registration(request));
  });
  server.route("POST", "/workers/drain", [this](const HttpRequest& request, const ResponsePtr& response) {
    handle_drain_worker(core, request, response);
  });
  server.route("DELETE", "/workers", [this](const HttpRequest& request, const ResponsePtr& response) {
    handle_delete_worker(core, request, response);
  });
  server.route("GET", "/get_server_info", [this](const HttpRequest&, const ResponsePtr& response) {
    handle_gateway_info(core, response);
  });
}

void Gateway::Impl::tick() {
  const TimePoint time = now();
  core.registry.tick(time);
  core.queue.tick(time);
  if (file) file->look(core.registry, time);
  prober.tick(time);
  timer.start(WorkerProber::kTick, [this] { tick(); });
}

Status Gateway::Impl::add_named_workers() {
  const auto add = [this](const std::string& url, const WorkerName& as) {
    return core.registry.add(url, WorkerSource::kStatic, as).status();
  };
  for (const std::string& url : core.options.workers) SHOAL_TRY(add(url, {}));
  for (const GatewayOptions::PrefillWorker& prefill : core.options.prefill_workers)
    SHOAL_TRY(add(prefill.url, {policy::WorkerRole::kPrefill, prefill.bootstrap_port}));
  for (const std::string& url : core.options.decode_workers)
    SHOAL_TRY(add(url, {policy::WorkerRole::kDecode, 0}));
  return {};
}

Status Gateway::Impl::listen() {
  wire::HttpServerOptions http;
  http.tls = core.options.tls;
  http.loop = &loop;
  http.max_connections = static_cast<int>(core.options.max_connections);
  http.is_private = is_admin;
  http.admit = [this](const HttpRequest& head) { return admit(head, false); };
  const bool apart = core.options.admin_port >= 0;
  if (apart) {
    wire::HttpServerOptions apart_http;
    apart_http.tls = core.options.tls;
    apart_http.loop = &loop;
    apart_http.cors_origin = "";
    apart_http.admit = [this](const HttpRequest& head) { return admit(head, true); };
    admin = std::make_unique<wire::HttpServer>(std::move(apart_http));
    add_admin_routes(*admin);
    admin->route("POST", "/abort_request", [this](const HttpRequest& request, const ResponsePtr& response) {
      handle_abort(core, request, response, is_admin_key(request));
    });
    admin->route("GET", "/health",
                 [this](const HttpRequest&, const ResponsePtr& response) { handle_health(core, response); });
    admin->route("GET", "/metrics",
                 [this](const HttpRequest&, const ResponsePtr& response) { handle_metrics(core, response); });
    SHOAL_ASSIGN(bound,
                 admin->listen(core.options.admin_host, static_cast<std::uint16_t>(core.options.admin_port)));
    admin_port = bound;
  }
  users = std::make_unique<wire::HttpServer>(std::move(http));
  add_user_routes(*users);
  if (!apart) add_admin_routes(*users);
  SHOAL_ASSIGN(bound, users->listen(core.options.host, core.options.port));
  port = bound;
  return {};
}

// Servers end before what their handlers use; what still runs on the loop after that is called off there.
void Gateway::Impl::end_all() {
  if (users != nullptr) users->shutdown(std::chrono::milliseconds(0));
  if (admin != nullptr) admin->shutdown(std::chrono::milliseconds(0));
  loop.call([this] {
    timer.cancel();
    core.client.reset();
  });
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Expected<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  SHOAL_TRY(impl->add_named_workers());
  if (!impl->core.options.worker_file.empty()) {
    impl->file.emplace(impl->core.options.worker_file);
    SHOAL_TRY(impl->file->read_first(impl->core.registry));
  }
  std::unique_ptr<Gateway> gateway(new Gateway(std::move(impl)));
  // The loop runs already: nothing of the core is touched from here on but there.
  Impl& at = *gateway->impl_;
  SHOAL_TRY(at.listen());
  at.loop.post([&at] { at.tick(); });
  return gateway;
}

Gateway::~Gateway() { impl_->end_all(); }

std::uint16_t Gateway::port() const { return impl_->port; }
std::uint16_t Gateway::admin_port() const { return impl_->admin_port; }

bool Gateway::drain(std::chrono::milliseconds deadline) {
  impl_->loop.call([this] { impl_->core.draining = true; });
  return impl_->users->shutdown(deadline);
}

}  // namespace shoal::gateway
