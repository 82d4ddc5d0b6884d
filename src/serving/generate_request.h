// From OpenAI's sampling fields to what the engine is asked for.
//
// Thread-safety: pure but for the seed, which is drawn from the system where the client gave none.

#pragma once

#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "engine/request.h"
#include "wire/openai_request.h"

namespace shoal::serving {

// prompt: checked ids. vocabulary: for ids named in logit_bias and stop_token_ids, refused where outside.
Expected<engine::GenerateRequest> make_generate_request(const wire::CommonFields& fields,
                                                        std::vector<TokenId> prompt, std::int64_t vocabulary);

}  // namespace shoal::serving
