// The handle by which an answer is given, at once or as a stream, from any thread.
//
// Thread-safety: every function may be called from any thread; calls on one writer from two threads at once
//   are safe, their order is the caller's affair.
// Ownership: shared by whoever answers. It may outlive the handler, the connection and the server. A callback
//   given to on_disconnect must not hold the writer: nobody would be left to notice that it was dropped.
// Invariants:
//   1. Every request gets one answer: a writer dropped before it answered sends 500, one dropped in the
//      middle of a stream cuts the connection, so that the client can tell a torn stream from a whole one.
//   2. Nothing is sent after end(), after respond(), or once the client has gone; such calls do nothing.
//   3. The disconnect callback runs at most once, never after end() or respond() has been called (one already
//      running may still be seen), and is destroyed with the answer.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "wire/http_message.h"

namespace shoal::wire {

class ResponseState;

class ResponseWriter {
 public:
  explicit ResponseWriter(std::shared_ptr<ResponseState> state);
  ~ResponseWriter();
  ResponseWriter(const ResponseWriter&) = delete;
  ResponseWriter& operator=(const ResponseWriter&) = delete;

  // The whole answer. extra: headers besides Content-Type, Content-Length, Connection, Date and X-Request-Id.
  void respond(int status, std::string_view content_type, std::string_view body,
               const HeaderList& extra = {});
  void respond(const HttpReply& reply);

  // The head of a stream; it goes out at once. HTTP/1.1 clients get it chunked, HTTP/1.0 clients until close.
  void begin_stream(int status, std::string_view content_type, const HeaderList& extra = {});
  // Queues bytes and returns at once; what has been queued while a write was under way goes out as one.
  // False: the client has gone or was cut off for not reading, so there is no use in going on.
  bool write(std::string_view bytes);
  // Ends the stream.
  void end();

  // Bytes queued and not yet taken by the client's connection.
  std::size_t backlog() const;
  // Called once, on the connection's I/O thread, when the backlog has fallen to `bytes`; here and now where
  // it has. Destroyed uncalled with the answer, or when the client goes.
  void on_backlog_below(std::size_t bytes, std::function<void()> callback);

  // Called once on the connection's I/O thread as soon as the client closes its connection or is cut off,
  // also while nothing is being written. A client that only shuts down its sending side counts as gone.
  // Called here and now when that has already happened. The callback must be short, must not block and must
  // not throw.
  void on_disconnect(std::function<void()> callback);
  bool disconnected() const;

  // The request's id, sent back as X-Request-Id.
  const std::string& request_id() const;

 private:
  const std::shared_ptr<ResponseState> state_;
};

using ResponsePtr = std::shared_ptr<ResponseWriter>;

}  // namespace shoal::wire
