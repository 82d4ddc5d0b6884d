// The carrier for fabrics that are trusted: UCX's tagged messages over InfiniBand, RoCE or TCP.
//
// A UCX port is no boundary: what arrives there is not authenticated, and a peer may name the memory that is
// written. So it is used on an interface that the user has named as a fabric, and on no other. Ranks find
// each other over the connections of the TCP mesh, which are; these stay open, and tell when a peer is gone.
//
// Thread-safety: as Carrier.
// Ownership: owns the mesh's connections and all of UCX's objects. After an error none of these is left, so
//   that nothing writes into what a failed call was given.

#pragma once

#include <functional>
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
    // Asked while ranks connect: true ends that. May be empty.
    std::function<bool()> stop = {};
  };

  // Whether this build has it.
  static bool built();
  // mesh: by rank, attached (tcp_mesh.h); this rank's own place is empty. Returns once every rank has been
  // reached over the fabric. Fails as check_fabric() (ucx_library.h), and where one is not reached.
  static Expected<std::unique_ptr<UcxCarrier>> connect(std::int32_t rank, std::vector<Socket> mesh,
                                                       Options options, TimePoint deadline);
  ~UcxCarrier() override;

  std::int32_t rank() const override;
  std::int32_t ranks() const override;
  const char* name() const override { return "ucx"; }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override;
  void set_spinning(bool spinning) override;
  void abort(const std::string& reason) override;
  SharedSum* shared_sum(const Group&) override { return nullptr; }

 private:
  struct Impl;
  explicit UcxCarrier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::comm
