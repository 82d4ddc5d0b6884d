// Finds stop strings in streamed text, wherever the pieces' borders fall, and holds back what may become one.
//
// Thread-safety: none; it belongs to one choice on the engine thread.
// Invariants:
//   1. What comes out does not depend on how the text was cut into pieces: the match that ends first counts,
//      the longest of those that end together.
//   2. No part of a stop string that matched comes out, nor of one that still may.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::engine {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Appends to `out` what is safe to send. Returns the index of the stop string that matched; nothing may be
  // pushed after that.
  std::optional<std::size_t> push(std::string_view text, std::string& out);
  // The text is over: what was held back is no stop string.
  void finish(std::string& out);

  const std::string& stop(std::size_t index) const { return stops_[index]; }

 private:
  std::size_t held_length() const;

  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace shoal::engine
