#include "wire/http_router.h"

#include <algorithm>

namespace shoal::wire {

void HttpRouter::add(std::string_view method, std::string_view path, HttpHandler handler) {
  const bool prefix = path.ends_with('*');
  if (prefix) path.remove_suffix(1);
  routes_.push_back({std::string(method), std::string(path), prefix, std::move(handler)});
  // Exact paths first, then the longest prefix: find() takes the first that fits.
  std::stable_sort(routes_.begin(), routes_.end(), [](const Route& a, const Route& b) {
    return a.prefix != b.prefix ? !a.prefix : a.path.size() > b.path.size();
  });
}

HttpRouter::Match HttpRouter::find(std::string_view method, std::string_view path) const {
  Match match;
  const std::string* known = nullptr;  // the pattern that decided, so that methods of a wider one don't count
  for (const Route& route : routes_) {
    if (route.prefix ? !path.starts_with(route.path) : path != route.path) continue;
    if (known != nullptr && *known != route.path) break;
    known = &route.path;
    if (!match.allowed.empty()) match.allowed += ", ";
    match.allowed += route.method;
    if (route.method == "GET") match.allowed += ", HEAD";
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      match.handler = &route.handler;
      return match;
    }
  }
  if (known != nullptr) match.allowed += ", OPTIONS";
  return match;
}

}  // namespace shoal::wire
