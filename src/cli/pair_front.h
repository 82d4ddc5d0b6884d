// Answers a client's requests by a pair of workers: sends both legs, relays the decode worker's answer, ends
// the one leg where the other fails or the client goes.
//
// Thread-safety: handlers may be called from any thread.
// Ownership: owns its HTTP client and the loop that it runs on; exchanges under way share the response and
//   themselves, and live on the loop. Must outlive the server that calls it.
// Invariants: a request is answered once: by the decode worker's answer, or by the first leg that fails
//   before anything was answered. When the one leg has ended the other one ends, too.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/expected.h"
#include "wire/event_loop.h"
#include "wire/http_client.h"
#include "wire/http_message.h"
#include "wire/response_writer.h"

namespace shoal::cli {

class PairFront {
 public:
  struct Options {
    wire::Url prefill;
    wire::Url decode;
    std::uint16_t bootstrap_port = 8998;  // of the prefill worker, on its host
  };
  explicit PairFront(Options options);

  // /v1/completions and /v1/chat/completions.
  void generate(const wire::HttpRequest& request, const wire::ResponsePtr& response);
  // To both workers.
  void abort(const wire::HttpRequest& request, const wire::ResponsePtr& response);
  // What the decode worker answers as well as anybody: models, tokenizer.
  void relay(const wire::HttpRequest& request, const wire::ResponsePtr& response);
  // 200 where both are well.
  void health(const wire::ResponsePtr& response);

 private:
  class Exchange;

  wire::HttpCall call_to(const wire::Url& worker, const wire::HttpRequest& request, std::string body) const;
  void end_leg(const wire::Url& worker, const wire::HttpRequest& request, const std::string& rid,
               const std::vector<std::uint64_t>& rooms);

  const Options options_;
  wire::EventLoop loop_;
  wire::HttpClient http_;
};

// The two legs' bodies of a request. Fails with kInvalidArgument where the body is no request.
struct PairBodies {
  std::string prefill;
  std::string decode;
  std::string rid;
  std::vector<std::uint64_t> rooms;  // one for each answer
};
Expected<PairBodies> pair_bodies(std::string_view body, const std::string& bootstrap_host,
                                 std::uint16_t bootstrap_port);

}  // namespace shoal::cli
