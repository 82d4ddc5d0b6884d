#include "handover/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "tensor/kv_layout.h"
#include "wire/api_error.h"

namespace shoal::handover {
namespace {

// The rank that is asked for: 0 or more, -1 for all, nothing where the number is none.
std::optional<long> rank_in(const wire::HttpRequest& request, std::string_view name) {
  const auto text = request.parameter(name);
  if (!text) return -1;
  long rank = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), rank);
  if (error != std::errc() || end != text->data() + text->size() || rank < -1) return std::nullopt;
  return rank;
}

wire::HttpReply route(const BootstrapPort::Options& options, const wire::HttpRequest& request) {
  bool one = false;
  for (const std::string_view name : {"engine_rank", "target_tp_rank", "target_pp_rank"}) {
    const auto rank = rank_in(request, name);
    if (!rank)
      return wire::error_reply(Status(ErrorCode::kInvalidArgument,
                                      fmt::format("{} must be a rank, or -1 for all", name),
                                      std::string(name)));
    if (*rank > 0)
      return wire::error_reply(404, "not_found_error",
                               fmt::format("this worker has one rank, and {} is {}", name, *rank));
    one = one || *rank == 0;
  }
  if (one)
    return {200,
            "application/json",
            fmt::format(R"({{"rank_ip":"{}","rank_port":{}}})", options.rank_host, options.rank_port),
            {}};
  return {200,
          "application/json",
          fmt::format(R"({{"attn_tp_size":1,"attn_cp_size":1,"dp_size":1,"pp_size":1,"page_size":{},)"
                      R"("kv_cache_dtype":"{}","follow_bootstrap_room":true}})",
                      kPageTokens, options.kv_dtype),
          {}};
}

}  // namespace

Expected<std::unique_ptr<BootstrapPort>> BootstrapPort::start(Options options) {
  std::unique_ptr<BootstrapPort> port(new BootstrapPort());
  port->server_.route("GET", "/health", [](const wire::HttpRequest&, const wire::ResponsePtr& response) {
    response->respond(200, "application/json", R"({"status":"ok"})");
  });
  port->server_.route("GET", "/route",
                      [options](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
                        response->respond(route(options, request));
                      });
  port->server_.route("PUT", "/route", [](const wire::HttpRequest&, const wire::ResponsePtr& response) {
    response->respond(wire::error_reply(403, "permission_error",
                                        "routes are registered by this worker itself, not from outside"));
  });
  SHOAL_ASSIGN(listening, port->server_.listen(options.host, options.port));
  port->port_ = listening;
  return port;
}

}  // namespace shoal::handover
