// What a client may ask through /v1/chat/completions and /v1/completions, parsed and checked.
//
// Thread-safety: values; the parsers are pure.
// Ownership: requests own all they hold; nothing refers to the body they were parsed from.
// Invariants:
//   1. Every number is inside its documented range, every list inside its bound.
//   2. A failure is kInvalidArgument, with field() naming the field by its path.
//   3. null means absent. Fields nobody here knows are ignored; fields that are known and not built
//      (constrained output, forced tool calls, images, ...) are refused by name, never ignored.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "wire/bootstrap_fields.h"

namespace shoal::wire {

inline constexpr int kMaxChoices = 128;  // n
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;  // of one stop string
inline constexpr std::size_t kMaxStopTokenIds = 128;
inline constexpr std::size_t kMaxLogitBias = 1024;
inline constexpr std::size_t kMaxPrompts = 128;  // of one /v1/completions request
inline constexpr std::size_t kMaxRidBytes = 128;
inline constexpr int kDefaultCompletionTokens = 16;  // max_tokens of /v1/completions, as OpenAI has it

struct SamplingFields {
  double temperature = 1.0;         // 0 to 2; 0 takes the likeliest token
  double top_p = 1.0;               // above 0 to 1
  int top_k = 0;                    // 0: no limit; -1, as some clients say it, is read as 0
  double min_p = 0.0;               // 0 to 1
  double repetition_penalty = 1.0;  // above 0 to 10
  double frequency_penalty = 0.0;   // -2 to 2
  double presence_penalty = 0.0;    // -2 to 2
  std::vector<std::pair<TokenId, float>>
      logit_bias;  // -100 to 100 each; ids not yet checked against a vocabulary
  std::optional<std::int64_t> seed;
  std::vector<std::string> stop;  // none of them empty
  std::vector<TokenId> stop_token_ids;
  int min_tokens = 0;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  int n = 1;
  bool logprobs = false;
  int top_logprobs = 0;  // 0 to 20; only with logprobs
  // At most this many tokens per choice. Absent (chat only): as many as fit the context.
  std::optional<int> max_tokens;
};

// What both endpoints share besides sampling.
struct CommonFields {
  std::string model;  // empty where the client named none
  SamplingFields sampling;
  bool stream = false;
  bool include_usage = false;
  std::string user;
  std::string rid;         // the client's own name for the request, for /abort_request
  std::string cache_salt;  // prefixes are shared only among requests with the same salt
  // Where two workers share the request: one for each sequence, prompts times n; else empty.
  std::vector<BootstrapEntry> bootstrap;
};

struct ChatMessage {
  std::string role;  // system, developer, user, assistant or tool
  // Text parts are joined by a line break. Absent only for assistant.
  std::optional<std::string> content;
  std::optional<std::string> reasoning_content;
  std::optional<std::string> name;
  std::optional<std::string> tool_call_id;
  // A JSON list as the client sent it, but for function.arguments: text that holds a JSON object has become
  // that object, which is what templates expect. Empty where there are none.
  std::string tool_calls_json;
};

struct ChatRequest {
  CommonFields common;
  std::vector<ChatMessage> messages;  // at least one
  std::string tools_json;             // a JSON list, keys in the client's order; empty where there are none
  bool tool_choice_none = false;      // the client forbids tool calls
  std::string template_kwargs_json;   // chat_template_kwargs, a JSON object; empty where absent
  std::optional<std::string> reasoning_effort;
  bool add_generation_prompt = true;
  // The last message, an assistant's, is to be gone on with; then add_generation_prompt is false.
  bool continue_final_message = false;
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  CommonFields common;          // max_tokens is always set; 0 only with echo
  std::vector<Prompt> prompts;  // at least one; an id list holds at least one id
  bool echo = false;
};

// defaults: of the sampling fields that body leaves out; the model's makers may recommend others than
// OpenAI's.
Expected<ChatRequest> parse_chat_request(std::string_view body, const SamplingFields& defaults = {});
Expected<CompletionRequest> parse_completion_request(std::string_view body,
                                                     const SamplingFields& defaults = {});

// The messages as the JSON list a chat template reads: role, content and what else is present.
std::string messages_json(const std::vector<ChatMessage>& messages);

}  // namespace shoal::wire
