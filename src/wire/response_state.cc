#include "wire/response_state.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

namespace shoal::wire {

namespace {

// A header value from a caller may carry text from outside: a line break in it would start a new header.
void append_header(std::string& out, std::string_view name, std::string_view value) {
  const auto plain = [&out](std::string_view text) {
    for (const char c : text) {
      if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out.push_back(c);
    }
  };
  plain(name);
  out += ": ";
  plain(value);
  out += "\r\n";
}

std::string http_date() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const std::size_t size = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return {text, size};
}

}  // namespace

ResponseState::ResponseState(Traits traits, std::function<void()> wake)
    : traits_(std::move(traits)), wake_(std::move(wake)) {}

void ResponseState::append_head(int status, std::string_view content_type, const HeaderList& extra) {
  queued_ += fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  append_header(queued_, "Date", http_date());
  append_header(queued_, "X-Request-Id", traits_.request_id);
  if (!content_type.empty()) append_header(queued_, "Content-Type", content_type);
  if (!traits_.cors_origin.empty()) {
    append_header(queued_, "Access-Control-Allow-Origin", traits_.cors_origin);
    append_header(queued_, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  }
  for (const auto& [name, value] : extra) append_header(queued_, name, value);
  append_header(queued_, "Connection", traits_.keep_alive ? "keep-alive" : "close");
}

void ResponseState::respond(int status, std::string_view content_type, std::string_view body,
                            const HeaderList& extra) {
  std::function<void()> dropped_callback;  // destroyed outside the lock: it may own anything
  std::scoped_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kWaiting) return;
  append_head(status, content_type, extra);
  if (status != 204) queued_ += fmt::format("Content-Length: {}\r\n", body.size());
  queued_ += "\r\n";
  if (!traits_.head_only && status != 204) queued_ += body;
  dropped_callback.swap(callback_);
  finish();
}

void ResponseState::begin_stream(int status, std::string_view content_type, const HeaderList& extra) {
  std::scoped_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kWaiting) return;
  append_head(status, content_type, extra);
  if (traits_.chunked) queued_ += "Transfer-Encoding: chunked\r\n";
  queued_ += "\r\n";
  phase_ = Phase::kStreaming;
  wake();
}

bool ResponseState::write(std::string_view bytes) {
  std::scoped_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kStreaming) return false;
  if (bytes.empty() || traits_.head_only) return true;  // an empty chunk would end the stream
  if (queued_.size() + in_flight_ + bytes.size() > traits_.max_backlog) {
    cut();
    return false;
  }
  if (traits_.chunked) {
    fmt::format_to(std::back_inserter(queued_), "{:x}\r\n", bytes.size());
    queued_ += bytes;
    queued_ += "\r\n";
  } else {
    queued_ += bytes;
  }
  wake();
  return true;
}

void ResponseState::end() {
  std::function<void()> dropped_callback;
  std::scoped_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kStreaming) return;
  if (traits_.chunked && !traits_.head_only) queued_ += "0\r\n\r\n";
  dropped_callback.swap(callback_);
  finish();
}

void ResponseState::dropped() {
  {
    std::scoped_lock lock(mutex_);
    if (gone_) return;
    if (phase_ == Phase::kStreaming) {
      cut();
      return;
    }
  }
  respond(500, "application/json",
          R"({"error":{"message":"the server dropped the request without an answer","type":"internal_error",)"
          R"("param":null,"code":null}})",
          {});
}

void ResponseState::on_disconnect(std::function<void()> callback) {
  {
    std::scoped_lock lock(mutex_);
    if (!gone_ && phase_ != Phase::kCut) {
      if (phase_ != Phase::kFinished) callback_.swap(callback);
      return;
    }
  }
  callback();
}

bool ResponseState::disconnected() const {
  std::scoped_lock lock(mutex_);
  return gone_ || phase_ == Phase::kCut;
}

bool ResponseState::is_cut() const {
  std::scoped_lock lock(mutex_);
  return phase_ == Phase::kCut;
}

ResponseState::Batch ResponseState::take() {
  std::scoped_lock lock(mutex_);
  wake_asked_ = false;
  Batch batch;
  batch.cut = phase_ == Phase::kCut;
  batch.finished = phase_ == Phase::kFinished;
  batch.bytes.swap(queued_);
  in_flight_ += batch.bytes.size();
  return batch;
}

void ResponseState::wrote(std::size_t bytes) {
  std::function<void()> drained;
  {
    std::scoped_lock lock(mutex_);
    in_flight_ -= bytes < in_flight_ ? bytes : in_flight_;
    if (drained_ && !gone_ && queued_.size() + in_flight_ <= drained_at_) drained.swap(drained_);
  }
  if (drained) drained();
}

std::size_t ResponseState::backlog() const {
  std::scoped_lock lock(mutex_);
  return queued_.size() + in_flight_;
}

void ResponseState::on_backlog_below(std::size_t bytes, std::function<void()> callback) {
  {
    std::scoped_lock lock(mutex_);
    if (gone_ || phase_ == Phase::kCut || phase_ == Phase::kFinished) return;
    if (queued_.size() + in_flight_ > bytes) {
      drained_at_ = bytes;
      drained_.swap(callback);
      return;
    }
  }
  callback();
}

void ResponseState::release() {
  std::function<void()> wake;
  std::function<void()> callback;
  std::function<void()> drained;
  std::scoped_lock lock(mutex_);
  phase_ = Phase::kFinished;
  wake.swap(wake_);
  callback.swap(callback_);
  drained.swap(drained_);
}

void ResponseState::disconnect() {
  std::function<void()> wake;
  std::function<void()> callback;
  std::function<void()> drained;
  {
    std::scoped_lock lock(mutex_);
    if (gone_) return;
    gone_ = true;
    wake.swap(wake_);
    callback.swap(callback_);
    drained.swap(drained_);
    std::string().swap(queued_);
  }
  if (callback) callback();
}

void ResponseState::finish() {
  phase_ = Phase::kFinished;
  wake();
}

void ResponseState::cut() {
  phase_ = Phase::kCut;
  std::string().swap(queued_);
  // Said even where a wake is already owed: that one may wait behind a write which the client never reads.
  if (wake_) wake_();
}

void ResponseState::wake() {
  if (wake_asked_ || !wake_) return;
  wake_asked_ = true;
  wake_();
}

}  // namespace shoal::wire
