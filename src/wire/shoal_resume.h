// What a gateway says to a worker that is to go on with an answer which another has begun: the field
// `shoal_resume` of a request's body, and the answer's name in the header X-Shoal-Answer.
//
//     "shoal_resume":[{"choice":0,"output_ids":[310,22],"emitted_bytes":17,"finished":false}, ...]
//
// Thread-safety: values and pure functions.
// Errors: kInvalidArgument naming the field.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"

namespace shoal::wire {

struct ResumedFields {
  std::vector<TokenId> output_ids;  // tokens that clients have, or will not need
  std::int64_t emitted_bytes = 0;   // of the choice's text that clients have
  bool finished = false;
};

// One entry for each of the choices, in their order; nothing where the body has no such field.
Expected<std::vector<ResumedFields>> parse_resume(std::string_view body, std::int32_t choices);

// An answer's id and time, which stay the same whoever writes it: "0123...-1700000000".
struct AnswerName {
  std::string id;  // 32 hexadecimal digits
  std::int64_t created = 0;

  static std::optional<AnswerName> parse(std::string_view header);
};

}  // namespace shoal::wire
