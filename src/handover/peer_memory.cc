#include "handover/peer_memory.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>

namespace shoal::handover {

Status PeerMemory::read(std::span<const Piece> pieces) const {
  std::array<iovec, kMostPieces> here{};
  std::array<iovec, kMostPieces> there{};
  std::size_t total = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    here[i] = {pieces[i].to.data(), pieces[i].to.size()};
    there[i] = {reinterpret_cast<void*>(pieces[i].from), pieces[i].to.size()};
    total += pieces[i].to.size();
  }
  const ssize_t n = ::process_vm_readv(process_, here.data(), pieces.size(), there.data(), pieces.size(), 0);
  if (n == static_cast<ssize_t>(total)) return {};
  return {ErrorCode::kUnavailable, fmt::format("the other process's memory cannot be read: {}",
                                               n < 0 ? std::strerror(errno) : "it ends early")};
}

MemoryMark own_memory_mark() {
  static const std::uint64_t value = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  return {reinterpret_cast<std::uint64_t>(&value), value};
}

bool finds(const PeerMemory& memory, const MemoryMark& mark) {
  std::uint64_t found = 0;
  const PeerMemory::Piece piece{mark.address, std::as_writable_bytes(std::span(&found, 1))};
  return memory.read(std::span(&piece, 1)).ok() && found == mark.value;
}

}  // namespace shoal::handover
