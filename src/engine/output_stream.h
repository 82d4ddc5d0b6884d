// The text of one choice as it is generated: ids become whole characters, and stop strings end it.
//
// Thread-safety: none; it belongs to one choice on the engine thread.
// Ownership: keeps the tokenizer alive.
// Invariants: docs/execution.md R5. Ids that end a choice (eos, stop ids) are not pushed: they have no text.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/stop_matcher.h"
#include "tokenizer/tokenizer.h"

namespace shoal::engine {

class OutputStream {
 public:
  OutputStream(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, bool skip_special, bool continues,
               std::vector<std::string> stops)
      : detokenizer_(std::move(tokenizer), skip_special, continues), matcher_(std::move(stops)) {}

  // Appends to `text` what may be sent. Returns the stop string that matched, which ends the stream. Where
  // `may_stop` is false (min_tokens), stop strings are not looked for in this token's text.
  std::optional<std::string> push(TokenId id, bool may_stop, std::string& text) {
    const std::string piece = detokenizer_.push(id);
    if (!may_stop) {
      text += piece;
      return std::nullopt;
    }
    return match(piece, text);
  }

  // Appends what was held back. A character cut short may complete a stop string, too.
  std::optional<std::string> finish(bool may_stop, std::string& text) {
    const std::string rest = detokenizer_.finish();
    if (may_stop) {
      if (auto stop = match(rest, text)) return stop;
    } else {
      text += rest;
    }
    matcher_.finish(text);
    return std::nullopt;
  }

 private:
  std::optional<std::string> match(const std::string& piece, std::string& text) {
    if (const auto index = matcher_.push(piece, text)) return matcher_.stop(*index);
    return std::nullopt;
  }

  tokenizer::Detokenizer detokenizer_;
  StopMatcher matcher_;
};

}  // namespace shoal::engine
