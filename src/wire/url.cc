#include "wire/url.h"

#include <fmt/format.h>

#include <charconv>

namespace shoal::wire {

Expected<Url> Url::parse(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("'{}' is no URL to ask: {}", text, why));
  };
  std::string_view rest = text;
  Url url;
  if (rest.starts_with("https://")) {
    url.tls = true;
    url.port = 443;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (const auto scheme = rest.find("://"); scheme < rest.find('/')) {
    return wrong("only http:// and https:// are spoken here");
  }
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.path = std::string(rest.substr(slash));
  std::string_view authority = rest.substr(0, slash);
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return wrong("a '[' without its ']'");
    url.host = std::string(authority.substr(1, end - 1));
    port = authority.substr(end + 1);
    if (!port.empty() && port.front() != ':') return wrong("only :PORT may follow the address");
    if (!port.empty()) port.remove_prefix(1);
  } else {
    const std::size_t colon = authority.rfind(':');
    url.host = std::string(authority.substr(0, colon));
    if (colon != std::string_view::npos) port = authority.substr(colon + 1);
  }
  if (url.host.empty()) return wrong("it names no host");
  for (const char c : rest) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      return wrong("it holds a space or control character");
  }
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size() || url.port == 0)
      return wrong("its port is no number");
  }
  return url;
}

std::string Url::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

}  // namespace shoal::wire
