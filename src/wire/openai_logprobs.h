// Log-probabilities in the two shapes OpenAI gives them, and usage.
//
// Internal to wire/: include openai_response.h instead.
// Thread-safety: pure functions.

#pragma once

#include "wire/json_writer.h"
#include "wire/openai_response.h"

namespace shoal::wire {

// {"content":[{"token","logprob","bytes","top_logprobs"}]}
void write_chat_logprobs(const std::vector<TokenLogprobs>& tokens, JsonWriter& out);

// {"tokens","token_logprobs","top_logprobs","text_offset"}; offset in characters, moved on.
void write_completion_logprobs(const std::vector<TokenLogprobs>& tokens, int& offset, JsonWriter& out);

void write_usage(const TokenUsage& usage, JsonWriter& out);

}  // namespace shoal::wire
