// One HTTP request that generates: submits to the engine, turns its events into the answer, ends the work
// when the client leaves.
//
// Thread-safety: start() on the text thread; events come on the engine thread; a disconnect on an I/O thread.
// Ownership: kept alive by the engine's sinks and gone after the last event. Holds the response until then.
// Invariants:
//   1. Nothing is sent before every prompt has been accepted: a refusal is a status code, not a torn stream.
//   2. When the client goes or one prompt fails, every engine request of the session is cancelled, also
//      those still being submitted.
//   3. The answer ends exactly once; the session's name is free before its client hears of the end.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "engine/engine.h"
#include "serving/answer_format.h"
#include "serving/session_registry.h"
#include "tokenizer/tokenizer.h"
#include "wire/response_writer.h"

namespace shoal::serving {

// One prompt of the HTTP request; its choices are answered at indexes i * n to i * n + n - 1.
struct SessionPrompt {
  engine::GenerateRequest request;
  std::string echo;  // text to give before the output; empty: none
};

class GenerationSession : public std::enable_shared_from_this<GenerationSession> {
 public:
  struct Options {
    bool stream = false;
    bool logprobs = false;
    bool echo = false;
    bool skip_special = true;  // special tokens of the output have no text
    std::string rid;           // the client's name for the request; empty: none
    std::uint64_t number = 0;  // of the request on the text thread
  };

  // Submits every prompt; from then on the session runs by itself. All prompts have the same n. A rid that
  // runs already is refused. engine and registry must outlive the session.
  static void start(engine::Engine& engine, SessionRegistry& registry, wire::ResponsePtr response,
                    std::unique_ptr<AnswerFormat> format, std::vector<SessionPrompt> prompts,
                    Options options);
  ~GenerationSession();

  // Ends every prompt; the answer, with what there is, is still given. Any thread.
  void abort();

 private:
  struct Choice {
    wire::FinishedChoice result;
    bool begun = false;
  };
  struct PromptState {
    std::string echo;
    std::vector<wire::TokenLogprobs> echo_logprobs;
  };

  GenerationSession(engine::Engine& engine, SessionRegistry& registry, wire::ResponsePtr response,
                    std::unique_ptr<AnswerFormat> format, Options options);

  // Takes the name, or says why the request is not to run.
  Status enter();
  void submit_all(std::vector<SessionPrompt> prompts);
  void on_event(std::size_t prompt, engine::OutputEvent&& event);
  void handle(std::size_t prompt, engine::OutputEvent& event);
  void add_piece(std::size_t index, const Piece& piece, std::string& out);
  void complete(std::string& out);
  void fail(const Status& error);
  void cancel();
  void cancel_engine_requests();
  void release_name();

  std::vector<wire::TokenLogprobs> logprobs_of(const std::vector<engine::TokenOutput>& tokens) const;
  // echo: the prompt's text, which tells what its tokens show.
  std::vector<wire::TokenLogprobs> logprobs_of(TokenId first, const std::vector<PromptLogprobs>& prompt,
                                               std::string_view echo) const;

  engine::Engine& engine_;
  SessionRegistry& registry_;
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const Options options_;

  std::mutex mutex_;            // all below; held for microseconds
  wire::ResponsePtr response_;  // reset once the answer has ended
  std::unique_ptr<AnswerFormat> format_;
  std::vector<RequestId> ids_;
  std::vector<PromptState> prompts_;
  std::vector<TokenId> first_tokens_;
  std::vector<Choice> choices_;
  std::int32_t choices_per_prompt_ = 1;
  std::size_t running_ = 0;  // engine requests without their last event
  wire::TokenUsage usage_;
  bool started_ = false;  // every prompt accepted
  bool gone_ = false;     // the client has left, or the answer has failed
  bool aborted_ = false;  // abort() came while prompts were still being submitted
  bool named_ = false;    // stands in the registry
  std::vector<std::pair<std::size_t, engine::OutputEvent>> early_;  // events that came before started_
};

}  // namespace shoal::serving
