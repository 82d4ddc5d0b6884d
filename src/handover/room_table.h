// The rooms of one worker: every handover that it takes part in, in which state it is, until when it may stay
// there, and which rooms are over.
//
// Thread-safety: none; its owner guards it. Time is passed in.
// Invariants:
//   1. States only move forward, by move_to() alone: Bootstrapping, Waiting, Transferring, then Success; and
//      from any of these Failed. Both last ones are for good.
//   2. Every room that is not over has a deadline; expire() fails those that are past it.
//   3. A room that is over is remembered for kRemembered, longer than all deadlines together: what comes late
//      for it, or uses its number again, is refused. At most kMostRemembered are; beyond, the oldest go.
//   4. The counts of the states add up to the rooms that are open.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"

namespace shoal::handover {

// 63 bits, drawn by whoever sends both legs.
using RoomId = std::uint64_t;
inline constexpr RoomId kMostRoom = (RoomId{1} << 63) - 1;

enum class RoomState : std::uint8_t {
  kBootstrapping,  // this leg is here, the other worker is not in touch yet
  kWaiting,        // they have met; no byte has moved
  kTransferring,
  kSuccess,
  kFailed
};
inline constexpr std::size_t kOpenStates = 3;
std::string_view room_state_name(RoomState state);

class RoomTable {
 public:
  // The longest stay in each open state. In the first two a leg may stand in a queue behind others, its own
  // worker's or the other one's: as long as `shoal pair` waits for a leg; a gateway's own deadline ends it
  // earlier or later as it is set. In kTransferring it counts from the last byte: between two chunks a prompt
  // may wait for those of others. Who is dead is noticed within seconds by other means; these end what lives
  // and does not move.
  static constexpr std::array<std::chrono::seconds, kOpenStates> kLongest = {
      std::chrono::seconds(1800), std::chrono::seconds(1800), std::chrono::seconds(300)};
  static constexpr std::chrono::seconds kRemembered{4200};
  static constexpr std::size_t kMostRemembered = 65536;

  // Refuses a number that is open, or was open not long ago: the sentence says which.
  Status open(RoomId room, TimePoint now);
  // The room is over before it came: it will be refused. Nothing where it is open.
  void bury(RoomId room, TimePoint now);
  // False where the room is not open, or is in that state or past it.
  bool move_to(RoomId room, RoomState state, TimePoint now);
  // A byte has moved.
  void touch(RoomId room, TimePoint now);
  // It stays in its state until then at most.
  void hasten(RoomId room, TimePoint deadline);
  // From now on it stays in no state longer, counted as ever.
  void limit(RoomId room, std::chrono::seconds most, TimePoint now);

  std::optional<RoomState> state(RoomId room) const;  // of an open one
  bool over(RoomId room) const { return remembered_.contains(room); }
  std::size_t open_rooms() const { return open_.size(); }
  std::size_t count(RoomState state) const { return counts_[static_cast<std::size_t>(state)]; }
  // Since the start, of kSuccess and kFailed.
  std::uint64_t ended(RoomState state) const { return ended_[static_cast<std::size_t>(state) - kOpenStates]; }

  // Rooms that are past their deadline: failed from here on. With the state they were in.
  std::vector<std::pair<RoomId, RoomState>> expire(TimePoint now);
  // When expire() has something to do next; nothing where no room is open.
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Room {
    RoomState state = RoomState::kBootstrapping;
    TimePoint deadline{};
    std::chrono::nanoseconds most = std::chrono::hours(1);  // of any state
  };

  static std::chrono::nanoseconds longest(const Room& room);
  void remember(RoomId room, TimePoint now);
  void forget(TimePoint now);

  std::unordered_map<RoomId, Room> open_;
  std::unordered_map<RoomId, TimePoint> remembered_;
  std::deque<std::pair<TimePoint, RoomId>> forget_at_;
  std::array<std::size_t, kOpenStates> counts_{};
  std::array<std::uint64_t, 2> ended_{};
};

}  // namespace shoal::handover
