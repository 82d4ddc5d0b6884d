// What a ResponseWriter and its connection share: the bytes of one answer that wait to be sent.
//
// Thread-safety: full; one mutex, never held while a callback of the user runs.
// Ownership: held by the writer and, until the answer is sent or the client has gone, by the connection.
//   `wake` is held until then and no longer, so nothing of a connection outlives it here.
// Invariants:
//   1. Bytes are queued in the order of the calls; take() moves all of them out.
//   2. backlog = bytes queued + bytes taken and not yet reported by wrote(); a stream whose backlog would
//      pass the bound is cut.

#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "wire/http_message.h"

namespace shoal::wire {

class ResponseState {
 public:
  struct Traits {
    std::string request_id;
    std::string cors_origin;  // empty: no CORS headers
    bool head_only = false;   // the request was HEAD
    bool chunked = true;      // false for HTTP/1.0: a stream ends with the connection
    bool keep_alive = true;
    std::size_t max_backlog = 0;  // bytes; for streams
  };

  // wake: asks the connection to take(); called with the mutex held, must only post.
  ResponseState(Traits traits, std::function<void()> wake);

  // For the writer.
  void respond(int status, std::string_view content_type, std::string_view body, const HeaderList& extra);
  void begin_stream(int status, std::string_view content_type, const HeaderList& extra);
  bool write(std::string_view bytes);
  void end();
  void dropped();  // the last holder of the writer let go
  void on_disconnect(std::function<void()> callback);
  bool disconnected() const;
  std::size_t backlog() const;
  void on_backlog_below(std::size_t bytes, std::function<void()> callback);
  const std::string& request_id() const { return traits_.request_id; }

  // For the connection.
  bool is_cut() const;  // past its bound or given up: close now
  struct Batch {
    std::string bytes;
    bool finished = false;  // nothing follows
    bool cut = false;       // close now
  };
  Batch take();
  void wrote(std::size_t bytes);
  // False: this answer ends with the connection.
  bool keep_alive() const { return traits_.keep_alive; }
  // All has been sent: forgets the connection.
  void release();
  // The client has gone: forgets the connection and calls back.
  void disconnect();

 private:
  enum class Phase { kWaiting, kStreaming, kFinished, kCut };

  void append_head(int status, std::string_view content_type, const HeaderList& extra);
  void finish();
  void cut();
  void wake();

  const Traits traits_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::function<void()> callback_;
  std::function<void()> drained_;  // where somebody waits for the backlog to fall to drained_at_
  std::size_t drained_at_ = 0;
  std::string queued_;
  std::size_t in_flight_ = 0;
  Phase phase_ = Phase::kWaiting;
  bool wake_asked_ = false;
  bool gone_ = false;
};

}  // namespace shoal::wire
