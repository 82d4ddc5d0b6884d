// Where a server is: scheme, host, port and path.
//
// Thread-safety: values.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/expected.h"

namespace shoal::wire {

struct Url {
  bool tls = false;  // https://
  std::string host;  // without the brackets of an IPv6 address
  std::uint16_t port = 80;
  std::string path;  // empty or "/..."; with the query

  // "http://host[:port][/path]" or "https://..." (port 443); without a scheme it is http.
  static Expected<Url> parse(std::string_view text);
  std::string authority() const;  // "host:port" as the Host header has it
};

}  // namespace shoal::wire
