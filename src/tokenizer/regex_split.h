// Splits text by a sequence of patterns, as pre-tokenizers do.
//
// Thread-safety: a RegexSplitter never changes; any thread may split with it.
// Ownership: owns its compiled patterns.
// Invariants: the pieces of a text are its bytes in order, none lost and none empty. A pattern that needs
//   more than a bounded amount of work or memory on a text gives an error, never a hang.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::tokenizer {

// A compiled PCRE2 pattern over valid UTF-8, with Unicode classes. `\s` and `\S` mean Unicode's White_Space,
// which PCRE2's own differ from by U+180E.
class Regex {
 public:
  // Fails with kInvalidArgument, naming the pattern and PCRE2's reason.
  static Expected<Regex> compile(std::string_view pattern);

  struct Match {
    std::size_t begin;
    std::size_t end;
  };
  // Sets match to the first one at or after `from`; false where there is none. text must be valid UTF-8.
  // Fails with kExhausted when the pattern exceeds its limits.
  Expected<bool> find(std::string_view text, std::size_t from, Match& match) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

class RegexSplitter {
 public:
  // Each pattern splits every piece that the ones before it left: both its matches and what lies between them
  // become pieces, which later patterns see alone.
  static Expected<RegexSplitter> compile(const std::vector<std::string>& patterns);

  // text: valid UTF-8. The views point into it.
  Expected<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  std::vector<Regex> patterns_;
};

}  // namespace shoal::tokenizer
