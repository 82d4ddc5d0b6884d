#include "comm/collectives.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

#include "comm/add_parts.h"
#include "comm/shared_sum.h"

namespace shoal::comm {
namespace {

// Below this, in bytes of one rank's parts, one exchange beats two of half the size: a message over loopback
// costs about 8 us whatever it holds, and 32 KiB take as long at 4 GB/s.
constexpr std::int64_t kDirectBytes = 32 * 1024;
// Messages at once: the scratch for a sum of any size, what goes out and what comes in, stays at 2 x ranks x
// this, give or take a line of 16 values for each part.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

std::span<const std::byte> bytes_of(const float* values, std::int64_t n) {
  return std::as_bytes(std::span(values, static_cast<std::size_t>(n)));
}
std::span<std::byte> writable_bytes_of(float* values, std::int64_t n) {
  return std::as_writable_bytes(std::span(values, static_cast<std::size_t>(n)));
}

// The values that a rank sums for all: sizes differ by at most one line of 16.
std::int64_t chunk_begin(std::int64_t n, std::int64_t index, std::int64_t ranks) {
  const std::int64_t lines = (n + 15) / 16;
  return std::min(lines * index / ranks * 16, n);
}

}  // namespace

Collectives::Collectives(Carrier& carrier, Group group, Ledger& ledger, Options options)
    : carrier_(carrier),
      group_(std::move(group)),
      ledger_(ledger),
      options_(std::move(options)),
      shared_(group_.alone() ? nullptr : carrier.shared_sum(group_)),
      one_part_each_(group_.ranks.size(), 1) {}

template <typename F>
Status Collectives::charged(Purpose purpose, std::uint64_t payload, F&& f, std::uint64_t calls) {
  const TimePoint begin = now();
  Charge charge;
  charge.calls = calls;
  charge.payload = payload;
  Status status = f(charge.wire);
  charge.exposed = seconds_between(begin, now());
  ledger_.charge(purpose, charge);
  return status;
}

Status Collectives::transfer(std::span<const Outgoing> out, std::span<const Incoming> in, WireBytes& wire) {
  for (const Outgoing& each : out) {
    const auto peer = static_cast<std::size_t>(each.peer);
    const Scope scope = peer < options_.scopes.size() ? options_.scopes[peer] : Scope::kHost;
    wire[static_cast<std::size_t>(scope)] += each.bytes.size();
  }
  return carrier_.transfer(out, in, now() + options_.timeout);
}

Status Collectives::all_reduce(Purpose purpose, std::span<float> values) {
  const float* mine[] = {values.data()};
  return all_reduce(purpose, {one_part_each_, mine}, values);
}

Status Collectives::all_reduce(Purpose purpose, const Parts& parts, std::span<float> out) {
  assert(parts.counts.size() == group_.ranks.size());
  assert(parts.mine.size() == static_cast<std::size_t>(parts.counts[static_cast<std::size_t>(group_.index)]));
  if (group_.alone()) {
    add_parts(parts.mine, static_cast<std::int64_t>(out.size()), out.data());
    return {};
  }
  const std::uint64_t payload = out.size_bytes() * parts.mine.size();
  return charged(purpose, payload, [&](WireBytes& wire) -> Status {
    if (shared_ == nullptr) return sum_by_messages(parts, out, wire);
    wire[static_cast<std::size_t>(Scope::kHost)] += payload;
    return shared_->sum(parts.counts, parts.mine, static_cast<std::int64_t>(out.size()), out.data(),
                        now() + options_.timeout);
  });
}

// Piece by piece, so that scratch stays small.
Status Collectives::sum_by_messages(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const std::int32_t most = *std::max_element(parts.counts.begin(), parts.counts.end());
  const std::int64_t piece = std::max<std::int64_t>(kPieceBytes / most / 4 * group_.size(), 16);
  const auto n = static_cast<std::int64_t>(out.size());
  std::vector<const float*> mine(parts.mine.begin(), parts.mine.end());
  for (std::int64_t begin = 0; begin < n; begin += piece) {
    const std::int64_t length = std::min(piece, n - begin);
    const auto values = out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
    const Parts here{parts.counts, mine};
    const bool few = length * 4 * most <= kDirectBytes;
    SHOAL_TRY(few ? sum_directly(here, values, wire) : sum_in_chunks(here, values, wire));
    for (const float*& part : mine) part += length;
  }
  return {};
}

// Each rank adds all parts of one chunk up, then everybody gets the chunks.
Status Collectives::sum_in_chunks(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const auto length = static_cast<std::int64_t>(out.size());
  const std::int64_t ranks = group_.size();
  const std::int64_t own_begin = chunk_begin(length, group_.index, ranks);
  const std::int64_t own = chunk_begin(length, group_.index + 1, ranks) - own_begin;
  const std::int64_t total = std::accumulate(parts.counts.begin(), parts.counts.end(), std::int64_t{0});
  const auto mine_count = static_cast<std::int64_t>(parts.mine.size());
  // [what goes out: my parts by chunk][what comes in: all ranks' parts of my chunk]. Parts of one rank travel
  // as one message, side by side.
  scratch_.resize(static_cast<std::size_t>(mine_count * length + total * own));
  float* staged = scratch_.data();
  float* arrived = staged + mine_count * length;
  outgoing_.clear();
  incoming_.clear();
  pointers_.clear();
  for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
    const std::int64_t first = chunk_begin(length, peer, ranks);
    const std::int64_t size = chunk_begin(length, peer + 1, ranks) - first;
    const std::int64_t count = parts.counts[static_cast<std::size_t>(peer)];
    if (peer == group_.index) {
      for (const float* part : parts.mine) pointers_.push_back(part + own_begin);
      continue;
    }
    for (std::int64_t p = 0; p < mine_count; ++p)
      std::memcpy(staged + p * size, parts.mine[static_cast<std::size_t>(p)] + first,
                  static_cast<std::size_t>(size) * sizeof(float));
    outgoing_.push_back({rank_at(peer), bytes_of(staged, mine_count * size)});
    staged += mine_count * size;
    incoming_.push_back({rank_at(peer), writable_bytes_of(arrived, count * own)});
    for (std::int64_t p = 0; p < count; ++p) pointers_.push_back(arrived + p * own);
    arrived += count * own;
  }
  SHOAL_TRY(transfer(outgoing_, incoming_, wire));
  add_parts(pointers_, own, out.data() + own_begin);
  outgoing_.clear();
  incoming_.clear();
  for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.index) continue;
    const std::int64_t first = chunk_begin(length, peer, ranks);
    const std::int64_t size = chunk_begin(length, peer + 1, ranks) - first;
    outgoing_.push_back({rank_at(peer), bytes_of(out.data() + own_begin, own)});
    incoming_.push_back({rank_at(peer), writable_bytes_of(out.data() + first, size)});
  }
  return transfer(outgoing_, incoming_, wire);
}

// Everybody gets everything and adds it up by itself.
Status Collectives::sum_directly(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const auto n = static_cast<std::int64_t>(out.size());
  const std::int64_t total = std::accumulate(parts.counts.begin(), parts.counts.end(), std::int64_t{0});
  scratch_.resize(static_cast<std::size_t>(total * n));
  pointers_.clear();
  outgoing_.clear();
  incoming_.clear();
  float* at = scratch_.data();
  float* mine = nullptr;
  for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
    const std::int64_t count = parts.counts[static_cast<std::size_t>(peer)];
    if (peer == group_.index) {
      mine = at;
      for (std::int64_t p = 0; p < count; ++p)
        std::memcpy(at + p * n, parts.mine[static_cast<std::size_t>(p)], out.size_bytes());
    } else {
      incoming_.push_back({rank_at(peer), writable_bytes_of(at, count * n)});
    }
    for (std::int64_t p = 0; p < count; ++p, at += n) pointers_.push_back(at);
  }
  for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.index) continue;
    outgoing_.push_back({rank_at(peer), bytes_of(mine, static_cast<std::int64_t>(parts.mine.size()) * n)});
  }
  SHOAL_TRY(transfer(outgoing_, incoming_, wire));
  add_parts(pointers_, n, out.data());
  return {};
}

Status Collectives::reduce_scatter(Purpose purpose, std::span<const std::int64_t> counts,
                                   std::span<const float> values, std::span<float> out) {
  const std::int64_t own = counts[static_cast<std::size_t>(group_.index)];
  assert(static_cast<std::int64_t>(out.size()) == own);
  return charged(purpose, values.size_bytes(), [&](WireBytes& wire) -> Status {
    scratch_.resize(static_cast<std::size_t>(own * group_.size()));
    outgoing_.clear();
    incoming_.clear();
    pointers_.clear();
    const float* from = values.data();
    float* to = scratch_.data();
    for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
      const std::int64_t count = counts[static_cast<std::size_t>(peer)];
      if (peer == group_.index) {
        pointers_.push_back(from);
      } else {
        outgoing_.push_back({rank_at(peer), bytes_of(from, count)});
        incoming_.push_back({rank_at(peer), writable_bytes_of(to, own)});
        pointers_.push_back(to);
      }
      from += count;
      to += own;
    }
    SHOAL_TRY(transfer(outgoing_, incoming_, wire));
    add_parts(pointers_, own, out.data());
    return {};
  });
}

Status Collectives::all_gather(Purpose purpose, std::span<const std::byte> mine,
                               std::span<const std::span<std::byte>> all) {
  return charged(purpose, mine.size(), [&](WireBytes& wire) { return gather(mine, all, wire); });
}

Status Collectives::gather(std::span<const std::byte> mine, std::span<const std::span<std::byte>> all,
                           WireBytes& wire) {
  assert(all.size() == group_.ranks.size());
  outgoing_.clear();
  incoming_.clear();
  for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
    const auto place = all[static_cast<std::size_t>(peer)];
    if (peer == group_.index) {
      assert(place.size() == mine.size());
      if (!mine.empty()) std::memmove(place.data(), mine.data(), mine.size());
    } else {
      outgoing_.push_back({rank_at(peer), mine});
      incoming_.push_back({rank_at(peer), place});
    }
  }
  return transfer(outgoing_, incoming_, wire);
}

Status Collectives::all_to_all(Purpose purpose, std::span<const std::span<const std::byte>> out,
                               std::span<const std::span<std::byte>> in) {
  assert(out.size() == group_.ranks.size() && in.size() == group_.ranks.size());
  std::uint64_t payload = 0;
  for (const auto& each : out) payload += each.size();
  return charged(purpose, payload, [&](WireBytes& wire) -> Status {
    outgoing_.clear();
    incoming_.clear();
    for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
      const auto i = static_cast<std::size_t>(peer);
      if (peer == group_.index) {
        assert(out[i].size() == in[i].size());
        if (!in[i].empty()) std::memmove(in[i].data(), out[i].data(), in[i].size());
      } else {
        outgoing_.push_back({rank_at(peer), out[i]});
        incoming_.push_back({rank_at(peer), in[i]});
      }
    }
    return transfer(outgoing_, incoming_, wire);
  });
}

Status Collectives::broadcast(Purpose purpose, std::int32_t root, std::span<std::byte> bytes) {
  return charged(purpose, bytes.size(), [&](WireBytes& wire) -> Status {
    outgoing_.clear();
    incoming_.clear();
    if (group_.index != root) {
      incoming_.push_back({rank_at(root), bytes});
    } else {
      for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
        if (peer != root) outgoing_.push_back({rank_at(peer), bytes});
      }
    }
    return transfer(outgoing_, incoming_, wire);
  });
}

Status Collectives::send(Purpose purpose, std::int32_t peer, std::span<const std::byte> bytes) {
  return charged(purpose, bytes.size(), [&](WireBytes& wire) {
    const Outgoing out{rank_at(peer), bytes};
    return transfer(std::span(&out, 1), {}, wire);
  });
}

Status Collectives::receive(Purpose purpose, std::int32_t peer, std::span<std::byte> bytes) {
  // A call is counted where it is sent, the wait where it happens.
  return charged(
      purpose, 0,
      [&](WireBytes& wire) {
        const Incoming in{rank_at(peer), bytes};
        return transfer({}, std::span(&in, 1), wire);
      },
      0);
}

}  // namespace shoal::comm
