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
#include "wire/inner_note.h"
#include "wire/response_writer.h"
#include "wire/shoal_resume.h"

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
    SessionRegistry::Names names;
    std::uint64_t number = 0;  // of the request on the text thread
    bool inner = false;        // a gateway asks for notes beside the events (wire/inner_note.h)
    // One for each choice where the answer was begun by another worker; else empty.
    std::vector<wire::ResumedFields> resume;
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
    std::int64_t tokens = 0;  // put out so far, and their text in bytes; other workers' included
    std::int64_t bytes = 0;
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
  void begin_choice(std::size_t prompt, std::size_t index, std::string& out);
  void add_piece(std::size_t index, const Piece& piece, std::string& out);
  // Where a gateway asks for them.
  void note_tokens(std::size_t index, const engine::OutputEvent& event, std::string& out);
  void note(wire::InnerNote::Kind kind, std::size_t index, std::string& out) const;
  void take_up(const std::vector<SessionPrompt>& prompts);
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
  TimePoint arrived_{};
  double first_token_ = 0;  // seconds from then; 0: none yet
  bool started_ = false;    // every prompt accepted
  bool gone_ = false;       // the client has left, or the answer has failed
  bool aborted_ = false;    // abort() came while prompts were still being submitted
  bool named_ = false;      // stands in the registry
  std::vector<std::pair<std::size_t, engine::OutputEvent>> early_;  // events that came before started_
};

}  // namespace shoal::serving
