// The pre-tokenizer of a tokenizer.json: cuts a normalized text into the words that are encoded one by one.
//
// Thread-safety: never changes once parsed.

#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/regex_split.h"

namespace shoal::tokenizer {

// Words as views into the text, or into `owned` where a step changed one.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> owned;
};

class HfPretokenizer {
 public:
  HfPretokenizer() = default;  // one word
  // Known types: Sequence, Split, ByteLevel, Metaspace, Digits, Whitespace, WhitespaceSplit, Punctuation,
  // CharDelimiterSplit, BertPreTokenizer, FixedLength. Another one is kUnsupported.
  static Expected<HfPretokenizer> parse(JsonElement element, std::string_view source);

  // first: the text starts the input, which Metaspace's prepend_scheme "first" asks for.
  Expected<Words> split(std::string_view text, bool first) const;
  // Words are bytes that the vocabulary spells with byte_alphabet.h.
  bool byte_level() const { return byte_level_; }

 private:
  enum class Kind { kSplit, kPrefixSpace, kMetaspace, kFixedLength };
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend { kNever, kFirst, kAlways };
  struct Step {
    Kind kind;
    std::optional<Regex> regex;
    std::string literal;  // instead of the regex
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    std::string mark = "";
    Prepend prepend = Prepend::kNever;
    bool split_marks = true;
    std::size_t length = 0;  // characters
  };
  Status add(JsonElement element, std::string_view source, int depth);
  Status add_split(JsonElement element, std::string_view source);
  Status add_pattern(std::string_view pattern, Behavior behavior, bool invert = false);
  static Expected<Behavior> behavior_of(JsonElement element, std::string_view source,
                                        std::string_view fallback);
  Status add_metaspace(JsonElement element, std::string_view source);
  static Status split_one(const Step& step, std::string_view word, std::vector<std::string_view>& out);
  static void cut_fixed(const Step& step, std::string_view word, std::vector<std::string_view>& out);
  static void mark_spaces(const Step& step, std::string_view word, bool first, Words& out);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace shoal::tokenizer
