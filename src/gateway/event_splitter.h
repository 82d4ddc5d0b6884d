// Cuts a stream's bytes into whole server-sent events without touching them, so that only whole ones are
// forwarded.
//
// Thread-safety: none; one stream.
// Ownership: holds the bytes of an unfinished event, at most kMostBytes.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace shoal::gateway {

class EventSplitter {
 public:
  static constexpr std::size_t kMostBytes = 16 * 1024 * 1024;

  // Calls on_event with each event that is now whole, its blank line included; false from it, or an event
  // that is too long, ends the cutting with false.
  template <typename F>
  bool push(std::string_view bytes, F&& on_event) {
    if (!held_.empty()) {
      // Only the border can hide an end that neither part shows.
      const std::size_t from = held_.size() > 3 ? held_.size() - 3 : 0;
      held_ += bytes;
      std::string whole;
      whole.swap(held_);
      return cut(whole, from, on_event);
    }
    return cut(bytes, 0, on_event);
  }
  // What has come of an event without an end, once: the stream is over.
  std::string rest() { return std::exchange(held_, {}); }

 private:
  template <typename F>
  bool cut(std::string_view bytes, std::size_t from, F&& on_event) {
    for (std::size_t end; (end = end_of_event(bytes, from)) != std::string_view::npos; from = 0) {
      if (!on_event(bytes.substr(0, end))) return false;
      bytes.remove_prefix(end);
    }
    held_ = bytes;
    return held_.size() <= kMostBytes;
  }
  // Past its blank line, "\n\n" or "\n\r\n".
  static std::size_t end_of_event(std::string_view bytes, std::size_t from) {
    for (std::size_t at = from; (at = bytes.find('\n', at)) != std::string_view::npos; ++at) {
      if (at + 1 < bytes.size() && bytes[at + 1] == '\n') return at + 2;
      if (at + 2 < bytes.size() && bytes[at + 1] == '\r' && bytes[at + 2] == '\n') return at + 3;
    }
    return std::string_view::npos;
  }

  std::string held_;
};

}  // namespace shoal::gateway
