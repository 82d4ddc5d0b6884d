// What the gateway reads off a request's body, and the few edits it makes: everything else goes on as it
// came.
//
// Thread-safety: values and pure functions.
// Invariants: a body that is edited stays the same bytes but for the edit.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "policy/profile.h"

namespace shoal::gateway {

struct RequestFacts {
  std::string model;  // empty where none is named
  bool stream = false;
  bool has_seed = false;
  bool has_rooms = false;  // names a handover itself
  // What two workers cannot answer together: nothing to decode, or log-probabilities of the prompt.
  bool alone = false;
  std::string rid;           // the client's name for it
  std::int32_t prompts = 1;  // of /v1/completions
  std::int32_t choices = 1;  // in all
  policy::RequestSize size;
};

// Fails with kInvalidArgument where the body is no JSON object, or what must be read has another type. What
// else is wrong is for the worker to say.
Expected<RequestFacts> read_facts(std::string_view body);

// fields: "\"seed\":1,\"x\":2", put before the body's own: of two fields of a name the first counts for
// workers of this system. body: a JSON object.
std::string with_fields(std::string_view body, std::string_view fields);

// The value of the body's own field `name`, where it has one, becomes the string `value`.
std::string with_text_replaced(std::string_view body, std::string_view name, std::string_view value);

}  // namespace shoal::gateway
