// Sums over ranks of several hosts: messages between hosts carry each value once each way, whatever the
// number of ranks.

#include <algorithm>
#include <cassert>
#include <utility>

#include "comm/add_parts.h"
#include "comm/collectives.h"
#include "comm/sum_pieces.h"
#include "layout/traffic.h"

namespace shoal::comm {
// Where ranks stand side by side by host, equally many on each and more than one on some.
std::optional<Collectives::HostGrid> Collectives::host_grid(const Group& group,
                                                            const std::vector<std::int32_t>& hosts) {
  if (hosts.empty()) return std::nullopt;
  const auto host_of = [&](std::int32_t index) {
    return hosts[static_cast<std::size_t>(group.ranks[static_cast<std::size_t>(index)])];
  };
  std::int32_t local = 1;
  while (local < group.size() && host_of(local) == host_of(0)) ++local;
  if (local == 1 || local == group.size() || group.size() % local != 0) return std::nullopt;
  for (std::int32_t index = 0; index < group.size(); ++index) {
    const std::int32_t first = index / local * local;
    if (host_of(index) != host_of(first)) return std::nullopt;
    if (first > 0 && index == first && host_of(index) == host_of(index - 1)) return std::nullopt;
  }
  return HostGrid{group.size() / local, local, group.index / local, group.index % local};
}

// Each rank of a host sums a share of the values: it gets the others' parts of it, adds them to what the
// hosts before have added up, hands that on, and the last host's sums go back to all: the sums of rank after
// rank, as on one host. Piece after piece, so that all hosts add at once.
Status Collectives::sum_over_hosts(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const HostGrid& grid = *grid_;
  const auto length = static_cast<std::int64_t>(out.size());
  const auto share = [&](std::int32_t local) {
    return std::pair(SumRoute::chunk_begin(length, local, grid.local),
                     SumRoute::chunk_begin(length, local + 1, grid.local));
  };
  const auto [own_begin, own_end] = share(grid.index);
  SHOAL_TRY(gather_share(parts, length, wire));
  SHOAL_TRY(fold_along_hosts(
      out.subspan(static_cast<std::size_t>(own_begin), static_cast<std::size_t>(own_end - own_begin)), wire));
  outgoing_.clear();
  incoming_.clear();
  for (std::int32_t local = 0; local < grid.local; ++local) {
    if (local == grid.index) continue;
    const auto [begin, end] = share(local);
    const std::int32_t peer = rank_at(grid.host * grid.local + local);
    outgoing_.push_back({peer, bytes_of(out.data() + own_begin, own_end - own_begin)});
    incoming_.push_back({peer, writable_bytes_of(out.data() + begin, end - begin)});
  }
  return transfer(outgoing_, incoming_, wire);
}

// pointers_: all parts of this host's ranks of this rank's share, in the order of the sum.
Status Collectives::gather_share(const Parts& parts, std::int64_t length, WireBytes& wire) {
  const HostGrid& grid = *grid_;
  const std::int32_t first = grid.host * grid.local;
  const std::int64_t own_begin = SumRoute::chunk_begin(length, grid.index, grid.local);
  const std::int64_t own = SumRoute::chunk_begin(length, grid.index + 1, grid.local) - own_begin;
  const auto mine_count = static_cast<std::int64_t>(parts.mine.size());
  std::int64_t total = 0;
  for (std::int32_t local = 0; local < grid.local; ++local)
    total += parts.counts[static_cast<std::size_t>(first + local)];
  // [my parts of the others' shares][all parts of mine][what the host before has added up of a piece]
  room_for(static_cast<std::size_t>(mine_count * length + total * own + kPieceBytes / 4));
  float* staged = scratch_.data();
  float* arrived = staged + mine_count * length;
  outgoing_.clear();
  incoming_.clear();
  pointers_.clear();
  for (std::int32_t local = 0; local < grid.local; ++local) {
    const std::int64_t count = parts.counts[static_cast<std::size_t>(first + local)];
    for (std::int64_t p = 0; p < count; ++p) pointers_.push_back(arrived + p * own);
    if (local == grid.index) {
      // Out of the way of the sums, which may be written where a part lies.
      for (const float* part : parts.mine)
        arrived = std::copy(part + own_begin, part + own_begin + own, arrived);
      continue;
    }
    const std::int64_t begin = SumRoute::chunk_begin(length, local, grid.local);
    const std::int64_t end = SumRoute::chunk_begin(length, local + 1, grid.local);
    const float* from = staged;
    for (const float* part : parts.mine) staged = std::copy(part + begin, part + end, staged);
    outgoing_.push_back({rank_at(first + local), bytes_of(from, mine_count * (end - begin))});
    incoming_.push_back({rank_at(first + local), writable_bytes_of(arrived, count * own)});
    arrived += count * own;
  }
  return transfer(outgoing_, incoming_, wire);
}

// Host h adds piece p in step p + h; the last host's sums arrive everywhere in step p + hosts.
Status Collectives::fold_along_hosts(std::span<float> out, WireBytes& wire) {
  const HostGrid& grid = *grid_;
  const auto length = static_cast<std::int64_t>(out.size());
  const std::int64_t piece = kPieceBytes / static_cast<std::int64_t>(sizeof(float));
  const std::int64_t pieces = (length + piece - 1) / piece;
  const bool last = grid.host + 1 == grid.hosts;
  const auto there = [&](std::int32_t host) { return rank_at(host * grid.local + grid.index); };
  const auto piece_of = [&](std::int64_t p) {
    return out.subspan(static_cast<std::size_t>(p * piece),
                       static_cast<std::size_t>(std::min(piece, length - p * piece)));
  };
  const auto exists = [&](std::int64_t p) { return p >= 0 && p < pieces; };
  float* before = scratch_.data() + scratch_.size() - piece;
  std::vector<const float*> adding;
  for (std::int64_t step = 0; step < pieces + grid.hosts; ++step) {
    const std::int64_t adds = step - grid.host, done = step - grid.hosts;
    outgoing_.clear();
    incoming_.clear();
    if (!last && exists(adds - 1))
      outgoing_.push_back({there(grid.host + 1), std::as_bytes(piece_of(adds - 1))});
    for (std::int32_t host = 0; last && exists(done) && host < grid.host; ++host)
      outgoing_.push_back({there(host), std::as_bytes(piece_of(done))});
    if (grid.host > 0 && exists(adds))
      incoming_.push_back({there(grid.host - 1),
                           writable_bytes_of(before, static_cast<std::int64_t>(piece_of(adds).size()))});
    if (!last && exists(done))
      incoming_.push_back({there(grid.hosts - 1), std::as_writable_bytes(piece_of(done))});
    SHOAL_TRY(transfer(outgoing_, incoming_, wire));
    if (!exists(adds)) continue;
    adding.clear();
    if (grid.host > 0) adding.push_back(before);
    for (const float* part : pointers_) adding.push_back(part + adds * piece);
    add_parts(adding, static_cast<std::int64_t>(piece_of(adds).size()), piece_of(adds).data());
  }
  return {};
}

}  // namespace shoal::comm
