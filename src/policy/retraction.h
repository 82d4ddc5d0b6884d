// Which running sequence gives way when a decode needs a page and none is left, and how it comes back: its
// pages kept in host memory meanwhile, or computed again.
//
// Thread-safety: pure functions; CopyRate belongs to the engine thread.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "policy/cost_model.h"

namespace shoal::policy {

struct RetractionCandidate {
  std::uint64_t arrival = 0;    // order in which sequences came; larger is younger
  std::int64_t pages_held = 0;  // without pages there is nothing to win
  std::int64_t pages_won = 0;   // of them, those that nobody else holds
  double steps_left = 0;        // that it is expected to take part in before it ends
  double return_seconds = 0;    // what its coming back takes
  bool leaving = false;         // finished or retracted already: its pages come back anyway
};

// The one whose pages are won for longest, each second of its return counted: pages x steps left / seconds.
// Never the oldest of those that hold pages, unless it is the only one: that one always gets through, then
// the next oldest does, so nobody gives way for ever. Ties: the youngest.
// Nothing where nobody qualifies, or where someone is already leaving: its pages are as good, and taking more
// at once would only mean more to bring back.
std::optional<std::size_t> choose_retracted(std::span<const RetractionCandidate> candidates);

enum class Retraction : std::uint8_t { kOffload, kRecompute };
inline constexpr std::size_t kRetractions = 2;
constexpr std::size_t retraction_index(Retraction way) { return static_cast<std::size_t>(way); }
const char* retraction_name(Retraction way);

// Predicted seconds that coming back takes once there are pages, by way.
struct ReturnSeconds {
  std::optional<double> offload;  // none: no room, or nothing that could be kept
  double recompute = 0;
};

// The fastest that is open; of equals the one that takes no memory. only: that way wherever it is open, else
// kRecompute.
Retraction choose_return(const ReturnSeconds& seconds, std::optional<Retraction> only = {});

// Computing positions [cached, tokens) again, in steps of at most max_rows tokens.
double recompute_seconds(const CostModel& cost, std::int64_t cached, std::int64_t tokens,
                         std::int32_t max_rows);

// How fast a rank copies pages between its pool and the host buffer.
//
// Invariants: the rate is positive and finite.
class CopyRate {
 public:
  double bytes_per_second() const { return rate_; }
  // Both ways.
  double round_trip_seconds(std::int64_t bytes) const { return 2 * static_cast<double>(bytes) / rate_; }
  // Ignores what is not positive and finite.
  void observe(double bytes, double seconds);

 private:
  // A tenth of what one core copies in the machines of today: a guess that is too low costs a computation
  // that the next retraction may save.
  double rate_ = 1e9;
  bool observed_ = false;
};

}  // namespace shoal::policy
