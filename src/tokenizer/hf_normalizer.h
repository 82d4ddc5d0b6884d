// The normalizer of a tokenizer.json: what is done to a text before it is split.
//
// Thread-safety: never changes once parsed.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/regex_split.h"

namespace shoal::tokenizer {

class HfNormalizer {
 public:
  HfNormalizer() = default;  // changes nothing
  // Known types: Sequence, Prepend, Replace, NFC, Strip, Lowercase (of ASCII). Another one is kUnsupported.
  static Expected<HfNormalizer> parse(JsonElement element, std::string_view source);

  // text: valid UTF-8.
  Expected<std::string> apply(std::string_view text) const;
  bool empty() const { return steps_.empty(); }

 private:
  enum class Kind { kPrepend, kReplace, kReplaceRegex, kNfc, kStrip };
  struct Step {
    Kind kind;
    std::string pattern, content;
    std::optional<Regex> regex;
    bool left = false, right = false;
  };
  Status add(JsonElement element, std::string_view source, int depth);

  std::vector<Step> steps_;
};

}  // namespace shoal::tokenizer
