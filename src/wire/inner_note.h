// What a worker tells a gateway beside a stream's events (X-Shoal-Inner: 1): an SSE comment before the event
// it is about, so that the event itself stays the bytes that a client reads.
//
//     : shoal {"choice":0,"index":5,"token_ids":[310,22],"byte_offset":17,"bytes":6}
//     data: {"id":"chatcmpl-...","choices":[...]}
//
// A note followed by a blank line tells of tokens that have no text yet.
//
// Thread-safety: values; parse() belongs to one thread at a time.
// Invariants: index counts the choice's output tokens before those in token_ids; byte_offset its bytes of
//   text before those of the event, `bytes` these.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace shoal::wire {

inline constexpr std::string_view kInnerHeader = "X-Shoal-Inner";
// The id of the answer, drawn by the gateway so that it stays the same when another worker goes on with it.
inline constexpr std::string_view kAnswerHeader = "X-Shoal-Answer";
inline constexpr std::string_view kNotePrefix = ": shoal ";

struct InnerNote {
  enum class Kind : std::uint8_t { kTokens, kRole, kFinish, kUsage };
  Kind kind = Kind::kTokens;
  std::int32_t choice = 0;
  std::int64_t index = 0;
  std::vector<TokenId> token_ids;
  std::int64_t byte_offset = 0;
  std::int64_t bytes = 0;
  // kUsage.
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t first_token_us = 0;  // from the request's arrival at the worker; 0: none came

  // The line with its line break.
  void append_to(std::string& out) const;
  // line: with or without its line break. Nothing where it is no such note.
  static std::optional<InnerNote> parse(std::string_view line);
};

}  // namespace shoal::wire
