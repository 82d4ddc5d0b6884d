#include "wire/sse_reader.h"

#include <utility>

namespace shoal::wire {

bool SseReader::push(std::string_view bytes) {
  while (!bytes.empty() && !failed_) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + data_.size() + piece.size() > kMaxSseEvent) {
      failed_ = true;
      break;
    }
    if (end == std::string_view::npos) {
      line_ += piece;
      break;
    }
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      take_line(piece);
    } else {
      line_ += piece;
      take_line(line_);
      line_.clear();
    }
  }
  return !failed_;
}

void SseReader::take_line(std::string_view line) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (std::exchange(at_start_, false) && line.starts_with(kByteOrderMark))
    line.remove_prefix(kByteOrderMark.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) {
    if (has_data_) on_event_(data_);
    data_.clear();
    has_data_ = false;
  } else if (line.starts_with("data:")) {
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_.push_back('\n');
    data_ += line;
    has_data_ = true;
  }
}

}  // namespace shoal::wire
