// Answers as OpenAI's clients read them: whole objects, stream chunks, log-probabilities, usage, model list.
//
// Thread-safety: builders belong to one answer and one thread at a time; free functions are pure.
// Ownership: builders own what they repeat in every chunk; they append to strings of the caller's.
// Invariants:
//   1. What is written is valid JSON in valid UTF-8 whatever the texts hold; a token's own bytes are in
//      `bytes`.
//   2. A stream is: per choice a role chunk (chat), content chunks, a finish chunk; then the usage chunk with
//      empty choices where asked for (then every other chunk says "usage":null); then [DONE].

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "wire/json_writer.h"

namespace shoal::wire {

struct TokenUsage {
  int prompt_tokens = 0;
  int completion_tokens = 0;  // of all choices
  int cached_tokens = 0;      // of the prompt's
};

struct AlternativeToken {
  std::string bytes;  // may be part of a character
  double logprob = 0;
};

struct TokenLogprobs {
  std::string bytes;              // of the token, may be part of a character
  std::optional<double> logprob;  // nothing for a prompt's first token
  std::vector<AlternativeToken> top;
  // Characters of the text that it stands for, where those are not its own: none for a begin token that the
  // text does not show, one less for a first word whose space it does not.
  std::optional<int> shown_characters = std::nullopt;
};

// Of a token, as text_offset counts them: a character that two tokens share counts with the first.
int count_characters(std::string_view bytes);

enum class FinishReason { kStop, kLength, kToolCalls, kAbort };
std::string_view finish_reason_name(FinishReason reason);

// One finished choice of an answer that is not streamed.
struct FinishedChoice {
  std::string text;
  FinishReason reason = FinishReason::kStop;
  std::vector<TokenLogprobs> logprobs;  // written only where has_logprobs
  bool has_logprobs = false;
  std::string matched_stop;  // the stop string that ended it; empty: none
};

// What every object of one answer repeats.
struct AnswerId {
  std::string id;            // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
};

std::string chat_completion(const AnswerId& answer, const std::vector<FinishedChoice>& choices,
                            const TokenUsage& usage);
// Choice i of the request's prompts in order, n each.
std::string text_completion(const AnswerId& answer, const std::vector<FinishedChoice>& choices,
                            const TokenUsage& usage);

// Events of a streamed chat answer, framed for SSE and appended to out.
class ChatStream {
 public:
  ChatStream(const AnswerId& answer, bool include_usage);

  void role(int choice, std::string& out) const;
  // logprobs: null where not asked for; of the tokens whose text this is.
  void content(int choice, std::string_view text, const std::vector<TokenLogprobs>* logprobs,
               std::string& out) const;
  void finish(int choice, FinishReason reason, std::string_view matched_stop, std::string& out) const;
  // Nothing where the client did not ask for it.
  void usage(const TokenUsage& usage, std::string& out) const;

 private:
  std::string prefix_;  // data: {"id":...,"choices":[
  std::string suffix_;  // ],"usage":null}\n\n
  bool include_usage_;
};

// Events of a streamed text completion.
class CompletionStream {
 public:
  CompletionStream(const AnswerId& answer, bool include_usage);

  // offset: characters of the choice's text (echoed prompt included) before this piece; moved on by the
  // tokens' own characters where logprobs are written.
  void text(int choice, std::string_view text, const std::vector<TokenLogprobs>* logprobs, int& offset,
            std::string& out) const;
  void finish(int choice, FinishReason reason, std::string_view matched_stop, std::string& out) const;
  void usage(const TokenUsage& usage, std::string& out) const;

 private:
  std::string prefix_;
  std::string suffix_;
  bool include_usage_;
};

// "data: " + json + a blank line. json holds no line breaks: JSON written here never does.
void append_sse_event(std::string_view json, std::string& out);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseContentType = "text/event-stream; charset=utf-8";
// The end of a stream that failed: an error event, then [DONE].
void append_sse_error(const Status& status, std::string& out);

struct ModelCard {
  std::string id;
  std::int64_t created = 0;
  std::string root;       // the file or folder it came from, by name
  int max_model_len = 0;  // tokens of context
};
std::string model_card(const ModelCard& card);
std::string model_list(const std::vector<ModelCard>& cards);

}  // namespace shoal::wire
