// The fields that both of OpenAI's endpoints share, read from a request's body.
//
// Internal to wire/: include openai_request.h instead.
// Thread-safety: pure functions.

#pragma once

#include "core/expected.h"
#include "wire/json.h"
#include "wire/openai_request.h"

namespace shoal::wire {

// All but logprobs, top_logprobs and max_tokens, which the endpoints read differently.
Status read_common_fields(const JsonFields& body, CommonFields& out);

// Refuses fields whose meaning is known and not built. Common to both endpoints.
Status refuse_unbuilt(const JsonFields& body);

// A client's own word in an error message: at most 40 bytes of it, cut between characters.
std::string clipped(std::string_view text);

Status unbuilt(const std::string& path, std::string_view what);

// After every field has been read: what must hold between them.
Status check_token_limits(const SamplingFields& sampling);

}  // namespace shoal::wire
