// The gateway: one address in front of many workers.
//
// Thread-safety: all functions belong to the owner's thread; requests are answered meanwhile on the loop's.
// Ownership: owns the loop with everything on it: servers, connections to workers, requests under way.
// Invariants: all state is of the one loop thread, so that nothing here has a lock.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "core/expected.h"
#include "gateway/gateway_options.h"

namespace shoal::gateway {

class Gateway {
 public:
  // Listens, and begins to look after the workers. Fails where it cannot listen, or a worker's URL is none.
  static Expected<std::unique_ptr<Gateway>> start(GatewayOptions options);
  ~Gateway();

  std::uint16_t port() const;
  // Of the admin API; 0 where it is on port().
  std::uint16_t admin_port() const;

  // New requests get 503; those under way finish until the deadline, then they are cut. True where none had
  // to be.
  bool drain(std::chrono::milliseconds deadline);

 private:
  struct Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::gateway
