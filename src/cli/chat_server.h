// A server of the OpenAI API as `shoal chat` sees it: its models, and answers that arrive piece by piece.
//
// Thread-safety: one thread; pieces of an answer are handed over on the client's own thread meanwhile.
// Ownership: owns the key; shares the TLS context.
// Invariants:
//   1. Whatever the server sends, a call ends with an answer or one sentence, within its deadlines: 5 s to
//      connect, as much for TLS, then those of the options. Looking up a name has no deadline but the system
//      resolver's own, and is not cut by stop_fd.
//   2. Text handed over is UTF-8, but may hold control characters: terminals get it through printable().

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "wire/http_client.h"

namespace shoal::cli {

struct ChatAnswer {
  std::string text;           // what there is of it, also where `status` failed
  std::string finish_reason;  // as the server says it; empty where it did not come to that
  int tokens = 0;             // as the server counts them, else the pieces that came
  bool counted = false;       // by the server
  double first_seconds = 0;   // from sending to the first piece
  double rest_seconds = 0;    // from the first piece to the last
  Status status;              // kCancelled: stopped by the user

  // Of the tokens after the first; 0 where there is nothing to measure.
  double tokens_per_second() const;
};

class ChatServer {
 public:
  struct Options {
    std::string url;  // of the server or of its API: ".../v1" is added where the URL has no path
    std::string api_key;
    std::shared_ptr<wire::TlsContext> tls;
    std::chrono::milliseconds silence{600'000};  // longest wait for the next piece, the first included
  };

  static Expected<ChatServer> at(Options options);

  // The names under /models. Fails where the server cannot be asked or answers no such list within the
  // silence allowed, at most 30 s, and with kCancelled where stop_fd became readable first; -1: nothing stops
  // it.
  Expected<std::vector<std::string>> models(int stop_fd) const;

  enum class Piece { kText, kReasoning };
  using OnPiece = std::function<void(Piece kind, std::string_view text)>;
  // Asks body, a JSON object with "stream": true, and waits for the end of the answer. on_piece runs on
  // another thread. stop_fd: where it becomes readable the answer is cut at once, the connection with it; -1:
  // nothing does.
  ChatAnswer ask(std::string body, const OnPiece& on_piece, int stop_fd) const;

  // "host:port" for people.
  std::string name() const { return api_.authority(); }

 private:
  ChatServer(Options options, wire::Url api) : options_(std::move(options)), api_(std::move(api)) {}
  wire::HttpCall call(std::string_view path) const;

  Options options_;
  wire::Url api_;  // its path without a slash at the end
};

// text with every control character but line breaks and tabs replaced: what a server says must not steer the
// terminal.
std::string printable(std::string_view text);

}  // namespace shoal::cli
