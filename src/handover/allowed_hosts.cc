#include "handover/allowed_hosts.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace shoal::handover {
namespace {

constexpr std::array<unsigned char, 12> kV4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr int kV4Bits = 96;  // in front of an IPv4 address's own

std::string as_name(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  std::string name(text);
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return name;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 253 && std::ranges::all_of(text, [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

}  // namespace

std::optional<AllowedHosts::Address> AllowedHosts::address_of(const std::string& text) {
  Address address{};
  if (::inet_pton(AF_INET6, text.c_str(), address.data()) == 1) return address;
  std::ranges::copy(kV4Prefix, address.begin());
  if (::inet_pton(AF_INET, text.c_str(), address.data() + kV4Prefix.size()) == 1) return address;
  return std::nullopt;
}

Expected<AllowedHosts> AllowedHosts::parse(const std::vector<std::string>& entries) {
  AllowedHosts hosts;
  for (const std::string& entry : entries) {
    const std::size_t slash = entry.find('/');
    const std::string host = entry.substr(0, slash);
    const auto address = address_of(host);
    const auto bad = [&] {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is no address, network (10.0.0.0/8, fd00::/8) or host name", entry));
    };
    if (!address) {
      if (slash != std::string::npos || !is_name(as_name(host))) return bad();
      hosts.names_.push_back(as_name(host));
      continue;
    }
    const bool v4 = host.find(':') == std::string::npos;
    int bits = v4 ? 32 : 128;
    if (slash != std::string::npos) {
      const int most = bits;
      const char* end = entry.data() + entry.size();
      const auto [at, error] = std::from_chars(entry.data() + slash + 1, end, bits);
      if (error != std::errc() || at != end || bits < 0 || bits > most) return bad();
    }
    hosts.networks_.push_back({*address, v4 ? kV4Bits + bits : bits});
  }
  return hosts;
}

bool AllowedHosts::allows(std::string_view host) const {
  if (all()) return true;
  const auto address = address_of(std::string(host));
  if (!address) return std::ranges::find(names_, as_name(host)) != names_.end();
  return std::ranges::any_of(networks_, [&](const Network& network) {
    const auto whole = static_cast<std::size_t>(network.bits / 8);
    if (std::memcmp(address->data(), network.address.data(), whole) != 0) return false;
    const int rest = network.bits % 8;
    return rest == 0 || ((*address)[whole] ^ network.address[whole]) >> (8 - rest) == 0;
  });
}

}  // namespace shoal::handover
