// The normalizer of a tokenizer.json: what is done to a text before it is split.
//
// Known types: Sequence, Prepend, Replace, Strip, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt,
// BertNormalizer, ByteLevel, Precompiled.
//
// Thread-safety: never changes once parsed.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/precompiled_map.h"
#include "tokenizer/regex_split.h"
#include "tokenizer/unicode_normalization.h"

namespace shoal::tokenizer {

class HfNormalizer {
 public:
  HfNormalizer() = default;  // changes nothing
  // Fails with kUnsupported for a type that is not known, naming it and the known ones.
  static Expected<HfNormalizer> parse(JsonElement element, std::string_view source);

  // text: valid UTF-8.
  Expected<std::string> apply(std::string_view text) const;
  bool empty() const { return steps_.empty(); }

 private:
  enum class Kind : std::uint8_t {
    kPrepend,
    kReplace,
    kReplaceRegex,
    kForm,
    kStrip,
    kLowercase,
    kStripAccents,     // all marks
    kStripNonspacing,  // BertNormalizer's
    kNmt,
    kCleanText,       // BertNormalizer's
    kSpaceAroundCjk,  // BertNormalizer's
    kByteLevel,
    kPrecompiled,
  };
  struct Step {
    Kind kind;
    std::string pattern, content;
    std::optional<Regex> regex;
    bool left = false, right = false;
    NormalForm form = NormalForm::kNfc;
    std::shared_ptr<const PrecompiledMap> map;
  };
  Status add(JsonElement element, std::string_view source, int depth);
  Status add_replace(JsonElement element, std::string_view source);
  Status add_bert(JsonElement element);
  Status add_precompiled(JsonElement element, std::string_view source);
  void add(Kind kind);
  // A step whose regex matches what it removes.
  Status add_removal(Kind kind, std::string_view pattern);
  static Expected<std::string> apply(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace shoal::tokenizer
