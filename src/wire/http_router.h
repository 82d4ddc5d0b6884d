// Which handler answers a request: method and path, exact or by prefix.
//
// Thread-safety: add() before the server listens; find() from any thread afterwards.
// Ownership: owns the handlers.
// Invariants: an exact path beats a prefix, a longer prefix beats a shorter one; HEAD falls back to GET.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wire/http_message.h"
#include "wire/response_writer.h"

namespace shoal::wire {

// Runs on the connection's I/O thread: long work belongs elsewhere, the writer may be carried there.
using HttpHandler = std::function<void(HttpRequest request, ResponsePtr response)>;

class HttpRouter {
 public:
  // path: "/v1/models" for itself alone, "/v1/models/*" for everything below it.
  void add(std::string_view method, std::string_view path, HttpHandler handler);

  struct Match {
    const HttpHandler* handler = nullptr;  // null: nobody; then `allowed` tells 405 from 404
    std::string allowed;                   // "GET, HEAD, POST" where the path is known, else empty
  };
  Match find(std::string_view method, std::string_view path) const;

 private:
  struct Route {
    std::string method;
    std::string path;  // without the '*'
    bool prefix = false;
    HttpHandler handler;
  };
  std::vector<Route> routes_;
};

}  // namespace shoal::wire
