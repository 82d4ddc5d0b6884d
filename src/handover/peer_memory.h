// Reads from the memory of another process of this host and user: one copy, without a socket between. Whoever
// reads chooses where the bytes go, as on any connection.
//
// Thread-safety: a PeerMemory is a value, read() may be called from any thread.
// Errors: read() fails with kUnavailable where the process is gone or the system does not allow it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/expected.h"

namespace shoal::handover {

class PeerMemory {
 public:
  // Bytes in the other process and where they go here, of the same length.
  struct Piece {
    std::uint64_t from = 0;
    std::span<std::byte> to;
  };

  explicit PeerMemory(std::int32_t process) : process_(process) {}
  // All of them; at most kMostPieces.
  static constexpr std::size_t kMostPieces = 256;
  Status read(std::span<const Piece> pieces) const;

 private:
  std::int32_t process_;
};

// 64 random bits at an address of this process: whoever reads them there has the right one before it.
struct MemoryMark {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};
MemoryMark own_memory_mark();
// Whether the mark is found in that process.
bool finds(const PeerMemory& memory, const MemoryMark& mark);

}  // namespace shoal::handover
