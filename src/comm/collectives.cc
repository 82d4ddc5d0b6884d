#include "comm/collectives.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "comm/add_parts.h"
#include "comm/shared_sum.h"
#include "comm/sum_pieces.h"
#include "layout/traffic.h"

namespace shoal::comm {
Collectives::Collectives(Carrier& carrier, Group group, Ledger& ledger, Options options)
    : carrier_(carrier),
      group_(std::move(group)),
      ledger_(ledger),
      options_(std::move(options)),
      shared_(group_.alone() ? nullptr : carrier.shared_sum(group_)),
      grid_(host_grid(group_, options_.hosts)),
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

void Collectives::room_for(std::size_t values) {
  if (scratch_.size() < values) scratch_.resize(values);
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
  if (rounds(parts)) {
    return charged(purpose, out.size() * sizeof(Bf16),
                   [&](WireBytes& wire) { return sum_rounded(parts.mine.front(), out, wire); });
  }
  const std::uint64_t payload = out.size_bytes() * parts.mine.size();
  return charged(purpose, payload, [&](WireBytes& wire) -> Status {
    if (shared_ == nullptr) return sum_by_messages(parts, out, wire);
    wire[static_cast<std::size_t>(Scope::kHost)] += payload;
    return shared_->sum(parts.counts, parts.mine, static_cast<std::int64_t>(out.size()), out.data(),
                        now() + options_.timeout);
  });
}

bool Collectives::rounds(const Parts& parts) const {
  return options_.wire == DType::kBF16 && shared_ == nullptr &&
         std::ranges::all_of(parts.counts, [](std::int32_t count) { return count == 1; });
}

Status Collectives::sum_by_messages(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const std::int32_t most = *std::max_element(parts.counts.begin(), parts.counts.end());
  const bool few = static_cast<std::int64_t>(out.size_bytes()) * most <= SumRoute::kDirectBytes;
  if (few) return sum_directly(parts, out, wire);
  // As many bytes as in chunks, and half the exchanges.
  if (group_.size() == 2 && most == 1) return sum_of_two(parts, out, wire);
  return grid_ ? sum_over_hosts(parts, out, wire) : sum_in_chunks(parts, out, wire);
}

// Each sends all it has and adds by itself, a piece at a time.
Status Collectives::sum_of_two(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const auto length = static_cast<std::int64_t>(out.size());
  const std::int64_t piece = kPairBytes / static_cast<std::int64_t>(sizeof(float));
  room_for(static_cast<std::size_t>(std::min(piece, length)));
  const float* mine = parts.mine.front();
  const std::int32_t peer = rank_at(1 - group_.index);
  for (std::int64_t begin = 0; begin < length; begin += piece) {
    const std::int64_t n = std::min(piece, length - begin);
    const Outgoing outgoing{peer, bytes_of(mine + begin, n)};
    const Incoming incoming{peer, writable_bytes_of(scratch_.data(), n)};
    SHOAL_TRY(transfer(std::span(&outgoing, 1), std::span(&incoming, 1), wire));
    const float* both[] = {mine + begin, scratch_.data()};
    if (group_.index == 1) std::swap(both[0], both[1]);
    add_parts(both, n, out.data() + begin);
  }
  return {};
}

// A piece of each rank's chunk at a time: the others' parts of it arrive and are added up, and the sums of
// the piece before go to everybody in the same exchange.
Status Collectives::sum_in_chunks(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const auto length = static_cast<std::int64_t>(out.size());
  const std::int64_t ranks = group_.size();
  const std::int32_t most = *std::max_element(parts.counts.begin(), parts.counts.end());
  const std::int64_t longest = (((length + 15) / 16 + ranks - 1) / ranks) * 16;
  const std::int64_t piece = std::clamp<std::int64_t>(
      kPieceBytes / static_cast<std::int64_t>(sizeof(float)) / most / 16 * 16, 16, longest);
  // Of a rank's chunk, what piece `step` covers; nothing before the first and after the last.
  const auto covered = [&](std::int32_t rank, std::int64_t step) {
    const std::int64_t begin = SumRoute::chunk_begin(length, rank, ranks);
    const std::int64_t end = SumRoute::chunk_begin(length, rank + 1, ranks);
    return std::pair(std::clamp(begin + step * piece, begin, end),
                     std::clamp(begin + (step + 1) * piece, begin, end));
  };
  const std::int64_t steps = (longest + piece - 1) / piece;
  const std::int64_t total = std::accumulate(parts.counts.begin(), parts.counts.end(), std::int64_t{0});
  const auto mine_count = static_cast<std::int64_t>(parts.mine.size());
  // [what goes out: my parts by rank][what comes in: all ranks' parts of my piece]. Parts of one rank travel
  // as one message, side by side; one part alone goes from where it lies.
  const std::int64_t staged_values = mine_count == 1 ? 0 : mine_count * piece * ranks;
  room_for(static_cast<std::size_t>(staged_values + total * piece));
  for (std::int64_t step = 0; step <= steps; ++step) {
    const auto [own_begin, own_end] = covered(group_.index, step);
    const std::int64_t own = own_end - own_begin;
    float* staged = scratch_.data();
    float* arrived = staged + staged_values;
    outgoing_.clear();
    incoming_.clear();
    pointers_.clear();
    for (std::int32_t peer = 0; peer < group_.size(); ++peer) {
      const std::int64_t count = parts.counts[static_cast<std::size_t>(peer)];
      if (peer == group_.index) {
        for (const float* part : parts.mine) pointers_.push_back(part + own_begin);
        continue;
      }
      if (const auto [begin, end] = covered(peer, step); end > begin) {
        const float* from = parts.mine.front() + begin;
        if (mine_count > 1) {
          from = staged;
          for (const float* part : parts.mine) staged = std::copy(part + begin, part + end, staged);
        }
        outgoing_.push_back({rank_at(peer), bytes_of(from, mine_count * (end - begin))});
      }
      if (own > 0) {
        incoming_.push_back({rank_at(peer), writable_bytes_of(arrived, count * own)});
        for (std::int64_t p = 0; p < count; ++p) pointers_.push_back(arrived + p * own);
        arrived += count * own;
      }
      if (const auto [begin, end] = covered(group_.index, step - 1); step > 0 && end > begin)
        outgoing_.push_back({rank_at(peer), bytes_of(out.data() + begin, end - begin)});
      if (const auto [begin, end] = covered(peer, step - 1); step > 0 && end > begin)
        incoming_.push_back({rank_at(peer), writable_bytes_of(out.data() + begin, end - begin)});
    }
    SHOAL_TRY(transfer(outgoing_, incoming_, wire));
    if (own > 0) add_parts(pointers_, own, out.data() + own_begin);
  }
  return {};
}

// Everybody gets everything and adds it up by itself.
Status Collectives::sum_directly(const Parts& parts, std::span<float> out, WireBytes& wire) {
  const auto n = static_cast<std::int64_t>(out.size());
  const std::int64_t total = std::accumulate(parts.counts.begin(), parts.counts.end(), std::int64_t{0});
  room_for(static_cast<std::size_t>(total * n));
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
        std::copy_n(parts.mine[static_cast<std::size_t>(p)], n, at + p * n);
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
    room_for(static_cast<std::size_t>(own * group_.size()));
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

Status Collectives::exchange(Purpose purpose, std::span<const Outgoing> out, std::span<const Incoming> in,
                             std::uint64_t calls) {
  outgoing_.clear();
  incoming_.clear();
  std::uint64_t payload = 0;
  for (const Outgoing& each : out) {
    outgoing_.push_back({rank_at(each.peer), each.bytes});
    payload += each.bytes.size();
  }
  for (const Incoming& each : in) incoming_.push_back({rank_at(each.peer), each.bytes});
  return charged(
      purpose, payload, [&](WireBytes& wire) { return transfer(outgoing_, incoming_, wire); }, calls);
}

}  // namespace shoal::comm
