// Where everything lies in the memory that the ranks of a host share: one struct computes sizes and offsets,
// so that no two ranks can disagree.
//
//   page 0                 SegmentHeader: version and shape, abort word
//   ranks x line           doorbells
//   ranks x ranks          rings: two lines and ring_bytes each, from sender to receiver
//   ranks x arena_bytes    arenas: each rank's own values, for sums in place
//   for each group         ranks x lanes x line: rounds; ranks x 2 buffers of piece_bytes
//
// Everything is sparse: what no rank touches costs nothing.
//
// Thread-safety: values and pure functions.
// Invariants: offsets are in bytes from the segment's start, lines of 128 bytes (two cache lines: the
//   neighbour is prefetched), buffers on pages of 4 KiB.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::comm {

inline constexpr std::size_t kLineBytes = 128;
inline constexpr std::size_t kShmPage = 4096;

struct SegmentHeader {
  std::uint64_t shape = 0;  // ShmLayout::shape(), written before anybody attaches
  // 0, then 1 for good.
  std::atomic<std::uint32_t> aborted{0};
  // Whoever sets it first writes the reason, then `aborted`. A process may die between the two, and others
  // then set `aborted`: the reason ends at its first zero, wherever that is.
  std::atomic<std::uint32_t> claimed{0};
  std::atomic<char> reason[256] = {};
};

struct Doorbell {
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> sleepers{0};
};

struct RingHeader {
  alignas(kLineBytes) std::atomic<std::uint64_t> written{0};  // bytes, by the sender
  alignas(kLineBytes) std::atomic<std::uint64_t> read{0};     // bytes, by the receiver
};

struct RoundLine {
  std::atomic<std::uint32_t> round{0};
  std::atomic<std::uint32_t> sleepers{0};
  // Of a sum in place: where the rank's values lie in its arena, in bytes. Written before the round.
  std::atomic<std::uint64_t> offset{0};
};

struct ShmLayout {
  std::int32_t ranks = 1;
  std::int32_t lanes = 1;                          // threads of a rank that sum side by side
  std::size_t piece_bytes = std::size_t{1} << 20;  // of a sum that go through the buffers at once
  std::size_t ring_bytes = std::size_t{1} << 20;   // may wait between two ranks; a multiple of 4 KiB
  std::size_t arena_bytes = 0;                     // a multiple of 4 KiB
  // Ranks that sum together, in order.
  std::vector<std::vector<std::int32_t>> groups;

  static constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

  std::size_t doorbell(std::int32_t rank) const {
    return kShmPage + static_cast<std::size_t>(rank) * kLineBytes;
  }
  std::size_t ring(std::int32_t from, std::int32_t to) const {
    const auto pair =
        static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(to);
    return rings_begin() + pair * ring_stride();
  }
  std::size_t arena(std::int32_t rank) const {
    return arenas_begin() + static_cast<std::size_t>(rank) * arena_bytes;
  }
  std::size_t ring_data(std::int32_t from, std::int32_t to) const { return ring(from, to) + kShmPage; }
  // index: of the rank in its group.
  std::size_t round_line(std::size_t group, std::size_t index, std::size_t lane) const {
    return group_begin(group) + (index * static_cast<std::size_t>(lanes) + lane) * kLineBytes;
  }
  std::size_t buffer(std::size_t group, std::size_t index, std::size_t which) const {
    return group_begin(group) + lines_bytes(group) + (index * 2 + which) * piece_bytes;
  }
  std::size_t total() const { return group_begin(groups.size()); }
  // A hash of all fields: two ranks with different layouts do not attach.
  std::uint64_t shape() const;

 private:
  std::size_t rings_begin() const {
    return kShmPage + round_up(static_cast<std::size_t>(ranks) * kLineBytes, kShmPage);
  }
  std::size_t ring_stride() const { return kShmPage + ring_bytes; }
  std::size_t lines_bytes(std::size_t group) const {
    return round_up(groups[group].size() * static_cast<std::size_t>(lanes) * kLineBytes, kShmPage);
  }
  std::size_t arenas_begin() const {
    return rings_begin() + static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) * ring_stride();
  }
  std::size_t group_begin(std::size_t group) const {
    std::size_t at = arena(ranks);
    for (std::size_t g = 0; g < group; ++g) at += lines_bytes(g) + groups[g].size() * 2 * piece_bytes;
    return at;
  }
};

}  // namespace shoal::comm
