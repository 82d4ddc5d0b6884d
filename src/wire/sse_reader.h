// Cuts a byte stream into server-sent events: gives the data of each as soon as its blank line has come.
//
// Thread-safety: none; one stream, one thread.
// Ownership: holds the bytes of an unfinished event.
// Invariants: pieces may be cut anywhere; several data lines of one event are joined by a line break;
//   a byte order mark at the start, comments and other fields are skipped; an event longer than kMaxSseEvent
//   fails the stream.

#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace shoal::wire {

inline constexpr std::size_t kMaxSseEvent = 16 * 1024 * 1024;

class SseReader {
 public:
  // on_event gets the data of one event; the view ends with the call.
  explicit SseReader(std::function<void(std::string_view data)> on_event) : on_event_(std::move(on_event)) {}

  // False once an event is too long; what follows is ignored.
  bool push(std::string_view bytes);

 private:
  void take_line(std::string_view line);

  std::function<void(std::string_view)> on_event_;
  std::string line_;
  std::string data_;
  bool at_start_ = true;  // where a byte order mark may stand
  bool has_data_ = false;
  bool failed_ = false;
};

}  // namespace shoal::wire
