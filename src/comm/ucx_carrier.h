// The carrier for fabrics that are trusted: UCX's tagged messages over InfiniBand, RoCE or TCP.
//
// A UCX port is no boundary: what arrives there is not authenticated, and a peer may name the memory that is
// written. So it is used on an interface that the user has named as a fabric, and on no other. Ranks find
// each other over the connections of the TCP mesh, which are; these stay open, and tell when a peer is gone.
//
// The library (libucp.so.0) is loaded when the first carrier is connected: it handles signals and memory in
// ways that a process which does not use it should not have to know about.
//
// Thread-safety: as Carrier.
// Ownership: owns the mesh's connections and all of UCX's objects. After an error none of these is left, so
//   that nothing writes into what a failed call was given.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/carrier.h"
#include "comm/socket.h"

namespace shoal::comm {

class UcxCarrier : public Carrier {
 public:
  struct Options {
    std::string interface;  // "mlx5_0:1", "eth1", "lo"
    int looks = 300;        // before sleeping, as TcpCarrier's
  };

  // Whether this build has it.
  static bool built();
  // mesh: by rank, attached (tcp_mesh.h); this rank's own place is empty. Fails with kUnsupported where the
  // build or the machine has no UCX, kInvalidArgument where there is no such interface.
  static Expected<std::unique_ptr<UcxCarrier>> connect(std::int32_t rank, std::vector<Socket> mesh,
                                                       Options options, TimePoint deadline);
  ~UcxCarrier() override;

  std::int32_t rank() const override;
  std::int32_t ranks() const override;
  const char* name() const override { return "ucx"; }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override;
  void abort(const std::string& reason) override;
  SharedSum* shared_sum(const Group&) override { return nullptr; }

 private:
  struct Impl;
  explicit UcxCarrier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::comm
