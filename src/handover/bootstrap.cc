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

// Which rank is asked for; nothing for all.
Expected<std::optional<std::int32_t>> asked_rank(const Layout& layout, const wire::HttpRequest& request) {
  const Degrees& degrees = layout.degrees();
  Coordinate at;
  bool one = false;
  const auto number = [&](const char* name, std::int32_t most) -> Expected<std::int32_t> {
    const auto rank = rank_in(request, name);
    if (!rank)
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} must be a rank, or -1 for all", name), name);
    if (*rank >= most)
      return Status(ErrorCode::kNotFound,
                    fmt::format("there are {} of these ranks, and {} is {}", most, name, *rank));
    one = one || *rank >= 0;
    return static_cast<std::int32_t>(std::max<long>(*rank, 0));
  };
  SHOAL_ASSIGN(rank, number("engine_rank", layout.ranks()));
  SHOAL_ASSIGN(tp, number("target_tp_rank", degrees.tp));
  SHOAL_ASSIGN(pp, number("target_pp_rank", degrees.pp));
  if (!one) return std::optional<std::int32_t>();
  at.tp = tp;
  at.pp = pp;
  return std::optional(std::max(rank, layout.rank(at)));
}

wire::HttpReply route(const BootstrapPort::Options& options, const wire::HttpRequest& request) {
  const auto rank = asked_rank(options.layout, request);
  if (!rank.ok()) {
    if (rank.error().code() == ErrorCode::kNotFound)
      return wire::error_reply(404, "not_found_error", rank.error().message());
    return wire::error_reply(rank.error());
  }
  if (*rank) {
    const std::string where = options.endpoint(**rank);
    const std::size_t colon = where.rfind(':');
    if (colon == std::string::npos)
      return wire::error_reply(503, "unavailable_error", fmt::format("rank {} is not ready", **rank));
    const std::string host = colon == 0 ? options.rank_host : where.substr(0, colon);
    return {200,
            "application/json",
            fmt::format(R"({{"rank_ip":"{}","rank_port":{}}})", host, where.substr(colon + 1)),
            {}};
  }
  const Degrees& degrees = options.layout.degrees();
  return {200,
          "application/json",
          fmt::format(R"({{"attn_tp_size":{},"attn_cp_size":{},"dp_size":{},"pp_size":{},"page_size":{},)"
                      R"("kv_cache_dtype":"{}","follow_bootstrap_room":true}})",
                      degrees.tp, degrees.cp, degrees.dp, degrees.pp, kPageTokens, options.kv_dtype),
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
