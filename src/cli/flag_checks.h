// Checks that several commands' flags share. A check says what is wrong, or nothing.
//
// Thread-safety: pure.

#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "comm/socket.h"

namespace shoal::cli {

// An unset variable in a start script must not mean that the flag was not given.
inline CLI::Validator not_empty(const std::string& mistake, const std::string& type) {
  return CLI::Validator([mistake](std::string& text) { return text.empty() ? mistake : std::string(); },
                        type);
}

inline CLI::Validator endpoint_check() {
  return CLI::Validator(
      [](std::string& text) {
        const auto endpoint = comm::parse_endpoint(text);
        return endpoint.ok() ? std::string() : endpoint.error().message();
      },
      "HOST:PORT");
}

// It stands in logs and in sentences of other hosts.
inline CLI::Validator host_id_check() {
  return CLI::Validator(
      [](std::string& text) {
        const bool good = !text.empty() && text.size() <= 256 &&
                          std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c < 0x7f; });
        return good ? std::string() : "a host's identity is 1 to 256 printable characters without spaces";
      },
      "ID");
}

}  // namespace shoal::cli
