// What two workers must have alike before KV goes from one to the other, and the digests that tie their
// messages together.
//
// Thread-safety: pure functions.
// Errors: one sentence that names both sides' values, kUnavailable: another pair may fit.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "wire/handover_messages.h"

struct XXH3_state_s;  // of xxHash

namespace shoal::handover {

// How many writes carry a checksum: none, one in 16 from the first on, all.
enum class Checksums : std::uint8_t { kOff, kSampled, kFull };
std::optional<Checksums> checksums_from_name(std::string_view name);
constexpr bool is_checked(Checksums checksums, std::uint64_t write) {
  return checksums == Checksums::kFull || (checksums == Checksums::kSampled && write % 16 == 0);
}

// fingerprint: of the model.
wire::HandoverTerms terms_of(const engine::KvPools& pools, std::string fingerprint, std::string build,
                             Checksums checksums);
Status check_terms(const wire::HandoverTerms& prefill, const wire::HandoverTerms& decode);

// Of a room and the pages reserved for it: every write and the commit carry it, so that what belongs to
// another room, or to pages given out before, is told apart.
std::uint64_t room_digest(std::uint64_t room, const std::vector<wire::RoomPage>& pages);
std::uint64_t prompt_digest(std::span<const TokenId> prompt);

// A body with its XXH3 behind it, whatever the checksums of writes; kCorrupt where that is another.
std::vector<std::byte> sealed(std::vector<std::byte> body);
Expected<std::span<const std::byte>> unsealed(std::span<const std::byte> body);

// XXH3 of bytes that come piece by piece.
class RunningSum {
 public:
  RunningSum();
  ~RunningSum();
  RunningSum(const RunningSum&) = delete;
  RunningSum& operator=(const RunningSum&) = delete;
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  XXH3_state_s* state_;
};

// The tiles of one write, in the order in which they travel: f(bytes) for every run of neighbouring slots.
// slots: of the pages, in logical order.
template <typename F>
Status for_each_block(const KvView& pool, std::int32_t layer, std::int32_t first_head, std::int32_t heads,
                      std::span<const std::int32_t> slots, F&& f) {
  const std::size_t tile = pool.layout.tile_bytes();
  for (std::int32_t head = first_head; head < first_head + heads; ++head) {
    for (const bool values : {false, true}) {
      for (std::size_t i = 0; i < slots.size();) {
        std::size_t n = 1;
        while (i + n < slots.size() && slots[i + n] == slots[i] + static_cast<std::int32_t>(n)) ++n;
        const std::size_t at =
            values ? pool.layout.v_tile(layer, head, slots[i]) : pool.layout.k_tile(layer, head, slots[i]);
        SHOAL_TRY(f(std::span<std::byte>(pool.base + at, n * tile)));
        i += n;
      }
    }
  }
  return {};
}

}  // namespace shoal::handover
