// The hosts that a decode worker calls for KV, where its operator names them (--prefill-hosts): else whoever
// may send it requests could have it connect anywhere.
//
// Thread-safety: a value.
// Errors: parsing says which entry is none.

#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::handover {

class AllowedHosts {
 public:
  // All.
  AllowedHosts() = default;
  // Each an address, a network as "10.0.0.0/8" or "fd00::/8", or a name.
  static Expected<AllowedHosts> parse(const std::vector<std::string>& entries);

  bool all() const { return networks_.empty() && names_.empty(); }
  // host: as a request names it. An address is allowed by its network; a name by the same name alone, for
  // what it resolves to is not known before, and may change.
  bool allows(std::string_view host) const;

 private:
  // An IPv4 address in its IPv6 form.
  using Address = std::array<unsigned char, 16>;
  struct Network {
    Address address{};
    int bits = 0;
  };
  static std::optional<Address> address_of(const std::string& text);

  std::vector<Network> networks_;
  std::vector<std::string> names_;  // in lower case, without a dot at the end
};

}  // namespace shoal::handover
