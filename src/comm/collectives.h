// What the ranks of one group do together. Every rank of the group makes the same calls in the same order.
//
// Sums run in rank order on every rank, so that all hold the same bits. Over carriers with shared memory they
// go through it; else as messages: everything to everybody where that is little, else each rank sums its part
// and hands it round (2 (R - 1) / R of the bytes out of each rank, the least there is). Over several hosts
// with several ranks each, sums go from host to host, so that each value crosses a link once each way. Where
// asked for, values that travel as messages do so in bf16, in chunks always.
//
// Thread-safety: none; belongs to the rank's executor thread.
// Ownership: borrows carrier and ledger; owns scratch, which only grows.
// Errors: those of the carrier. After one the group is of no use any more.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/carrier.h"
#include "comm/ledger.h"
#include "core/expected.h"
#include "layout/layout.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace shoal::comm {

// Values that each rank brings in one or more parts, to be added up over all ranks and parts.
struct Parts {
  // Of each rank, by its index in the group; at least 1 each.
  std::span<const std::int32_t> counts;
  // This rank's.
  std::span<const float* const> mine;
};

class Collectives {
 public:
  struct Options {
    // Of one call. Generous: lost ranks are noticed by their silence elsewhere, and then the carrier is
    // aborted; this ends what nobody notices.
    std::chrono::milliseconds timeout{120'000};
    // Of each rank of the worker, the number of its host; empty: one.
    std::vector<std::int32_t> hosts{};
    std::vector<Scope> scopes{};  // of each rank of the worker, seen from here; empty: all on this host
    // What values of all_reduce() travel as, f32 or bf16, alike on all ranks. Those in shared memory do not
    // travel; nor are parts rounded where a rank brings several.
    DType wire = DType::kF32;
  };

  Collectives(Carrier& carrier, Group group, Ledger& ledger, Options options);

  const Group& group() const { return group_; }

  // values becomes the sum of all ranks' values.
  Status all_reduce(Purpose purpose, std::span<float> values);
  // The same of parts, each of out.size() values: rank 0's in order, then rank 1's. out may be one of mine.
  Status all_reduce(Purpose purpose, const Parts& parts, std::span<float> out);
  // counts: how many values each rank keeps, by index; values: all of them. out: this rank's sums.
  Status reduce_scatter(Purpose purpose, std::span<const std::int64_t> counts, std::span<const float> values,
                        std::span<float> out);
  // all: one place for each rank's bytes, this rank's too, by index.
  Status all_gather(Purpose purpose, std::span<const std::byte> mine,
                    std::span<const std::span<std::byte>> all);
  // out: what each rank gets; in: where each rank's goes. Sizes agree pairwise; own ones too.
  Status all_to_all(Purpose purpose, std::span<const std::span<const std::byte>> out,
                    std::span<const std::span<std::byte>> in);
  // bytes: what is sent on the root, where it goes on the others.
  Status broadcast(Purpose purpose, std::int32_t root, std::span<std::byte> bytes);
  // peer: index in the group.
  Status send(Purpose purpose, std::int32_t peer, std::span<const std::byte> bytes);
  Status receive(Purpose purpose, std::int32_t peer, std::span<std::byte> bytes);
  // All of them at once, as Carrier::transfer(), with peers by index in the group; counted as `calls`.
  Status exchange(Purpose purpose, std::span<const Outgoing> out, std::span<const Incoming> in,
                  std::uint64_t calls);

 private:
  struct HostGrid {
    std::int32_t hosts = 0;
    std::int32_t local = 0;  // ranks on each
    std::int32_t host = 0;   // this rank's
    std::int32_t index = 0;  // among its ranks
  };
  static std::optional<HostGrid> host_grid(const Group& group, const std::vector<std::int32_t>& hosts);
  Status sum_over_hosts(const Parts& parts, std::span<float> out, WireBytes& wire);
  Status gather_share(const Parts& parts, std::int64_t length, WireBytes& wire);
  Status fold_along_hosts(std::span<float> out, WireBytes& wire);
  Status sum_by_messages(const Parts& parts, std::span<float> out, WireBytes& wire);
  Status sum_directly(const Parts& parts, std::span<float> out, WireBytes& wire);
  bool rounds(const Parts& parts) const;
  Status sum_rounded(const float* mine, std::span<float> out, WireBytes& wire);
  Status sum_rounded_in_chunks(const float* mine, std::span<float> out, WireBytes& wire);
  Status exchange_rounded(const float* mine, std::int64_t n, float* out, WireBytes& wire);
  Status sum_of_two(const Parts& parts, std::span<float> out, WireBytes& wire);
  Status sum_in_chunks(const Parts& parts, std::span<float> out, WireBytes& wire);
  Status gather(std::span<const std::byte> mine, std::span<const std::span<std::byte>> all, WireBytes& wire);
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, WireBytes& wire);
  // Scratch of at least so many values; what it held is undefined.
  void room_for(std::size_t values);
  std::int32_t rank_at(std::int32_t index) const { return group_.ranks[static_cast<std::size_t>(index)]; }
  // Runs f(wire) and charges what it took.
  template <typename F>
  Status charged(Purpose purpose, std::uint64_t payload, F&& f, std::uint64_t calls = 1);

  Carrier& carrier_;
  Group group_;
  Ledger& ledger_;
  Options options_;
  SharedSum* shared_;
  std::optional<HostGrid> grid_;
  std::vector<std::int32_t> one_part_each_;
  std::vector<float> scratch_;
  std::vector<const float*> pointers_;
  std::vector<Bf16> rounded_;
  std::vector<const Bf16*> rounded_parts_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

}  // namespace shoal::comm
