// What the engine is asked for, and what it answers with.
//
// Thread-safety: values; requests and events are passed by move between threads.
// Ownership: a request is owned by the engine from submit() to its last event.
// Invariants: for each choice, events carry text in order; the last event of a choice has `finish`; the last
//   event of a request has `last` and is sent exactly once, whatever happened.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"
#include "core/ids.h"
#include "layout/step_plan.h"

namespace shoal::engine {

// A choice that another worker has begun and this one goes on with.
struct ResumedChoice {
  // What it has put out: counts for penalties, min_tokens, random numbers and usage, and is not sent again.
  std::vector<TokenId> output;
  std::int64_t emitted_bytes = 0;  // of its text that have been sent
  bool finished = false;           // nothing of it is left to be done
};
class Departure;  // engine/handover_leg.h
class Arrival;

struct GenerateRequest {
  // The client's or the gateway's name for it: logs, /abort_request. Unique while running, or empty.
  std::string rid;
  std::vector<TokenId> prompt;  // at least one id, each inside the vocabulary
  // `choice` and `stop_ids` are set by the engine. `seed` is the request's; every choice shares it.
  SamplingParams sampling;
  std::int32_t n = 1;
  // At most this many tokens per choice; 0 computes prompt log-probabilities only. Cut to what the context
  // leaves.
  std::int32_t max_tokens = 16;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  // The output goes on with the prompt's text (raw completions): see tokenizer::Detokenizer, `continues`.
  bool continues_prompt = false;
  // Log-probabilities of the prompt's own tokens with the k best each (echo); -1 none. Such requests skip
  // cached pages, whose logits are gone.
  std::int32_t prompt_logprobs = -1;
  // Prefixes are shared only among requests with the same salt.
  std::string cache_salt;
  // Where the worker loses a rank: computed again once the ranks are whole, and the output goes on where it
  // was. Else it ends then, with kUnavailable: for a gateway, which goes on elsewhere.
  bool outlives_ranks = true;
  // One for each of the n choices, at least one of them unfinished; empty: the request begins here. The
  // output that follows is what it would have been, given the same seed.
  std::vector<ResumedChoice> resume;
  TimePoint arrival{};
  // One for each choice where another worker goes on after the first token, or has computed the prompt; not
  // both, and without prompt_logprobs and with max_tokens of at least 1. Empty elsewhere.
  std::vector<std::shared_ptr<Departure>> departures;
  std::vector<std::shared_ptr<Arrival>> arrivals;
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kError };

// One generated token with its logprobs, where asked for: those of the model's own distribution, before
// penalties, bias and temperature.
struct TokenOutput {
  TokenId id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;      // prompt tokens taken from the prefix cache
  std::int32_t completion_tokens = 0;  // of all choices
};

struct OutputEvent {
  std::int32_t choice = 0;
  std::string text;  // whole characters; may be empty
  // Tokens since the choice's last event, the one that ended it included, whether it has text or not. Text
  // may come later than its token, or never (stop strings).
  std::vector<TokenOutput> tokens;
  // With the first event of a request that asked for prompt log-probabilities.
  std::vector<PromptLogprobs> prompt_logprobs;
  std::optional<FinishReason> finish;
  // The stop string or, as text, the stop token that ended the choice; empty where eos or length did.
  std::string matched_stop;
  bool last = false;
  // With the last event. `error` is ok unless the request as a whole failed.
  Usage usage;
  Status error;
};

// Called on the engine thread; must only queue (T5 of docs/execution.md).
using OutputSink = std::function<void(OutputEvent&&)>;

}  // namespace shoal::engine
