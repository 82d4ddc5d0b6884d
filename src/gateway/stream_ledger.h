// What of a streamed answer has been forwarded, by choice: token ids and bytes of text. Says of each further
// event whether it goes on, and what another worker must know to go on with the answer.
//
// Thread-safety: none; one stream.
// Invariants:
//   1. Text is forwarded up to a byte offset and ids up to an index, each once and without a gap; a role
//   once,
//      a finish once, usage once.
//   2. An event whose token id differs from what was forwarded at that index, or that leaves a gap, is never
//      forwarded: the answer would be spliced from two.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "wire/inner_note.h"

namespace shoal::gateway {

class StreamLedger {
 public:
  explicit StreamLedger(std::int32_t choices) : choices_(static_cast<std::size_t>(choices)) {}

  enum class Verdict : std::uint8_t { kForward, kDrop, kContradicts };
  // Of the event that the note is about; kForward also enters it.
  Verdict judge(const wire::InnerNote& note);

  // Whether anything was forwarded that a further worker must take up.
  bool begun() const { return begun_; }
  // Every choice has its finish.
  bool finished() const;
  bool has_usage() const { return usage_; }
  std::int64_t tokens() const;
  std::size_t choices() const { return choices_.size(); }

  // "shoal_resume":[{"choice":0,"output_ids":[...],"emitted_bytes":17,"finished":false},...]
  std::string resume_field() const;

 private:
  struct Choice {
    std::vector<TokenId> ids;
    std::int64_t bytes = 0;
    bool role = false;
    bool finished = false;
  };
  Verdict judge_tokens(Choice& choice, const wire::InnerNote& note);

  std::vector<Choice> choices_;
  bool begun_ = false;
  bool usage_ = false;
};

}  // namespace shoal::gateway
