#include "engine/stop_matcher.h"

#include <algorithm>

namespace shoal::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::optional<std::size_t> StopMatcher::push(std::string_view text, std::string& out) {
  if (stops_.empty()) {
    out += text;
    return std::nullopt;
  }
  held_ += text;
  std::optional<std::size_t> matched;
  std::size_t start = 0;
  std::size_t end = std::string::npos;
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    const std::size_t at = held_.find(stops_[i]);
    if (at == std::string::npos) continue;
    const std::size_t stop_end = at + stops_[i].size();
    if (!matched || stop_end < end || (stop_end == end && at < start)) {
      matched = i;
      start = at;
      end = stop_end;
    }
  }
  if (matched) {
    out.append(held_, 0, start);
    held_.clear();
    return matched;
  }
  const std::size_t safe = held_.size() - held_length();
  out.append(held_, 0, safe);
  held_.erase(0, safe);
  return std::nullopt;
}

// Length of the longest end of the text that begins a stop string.
std::size_t StopMatcher::held_length() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > longest; --length) {
      if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) longest = length;
    }
  }
  return longest;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace shoal::engine
