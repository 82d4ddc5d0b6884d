#include "tokenizer/hf_normalizer.h"

#include <utility>

#include "tokenizer/in_quotes.h"
#include "tokenizer/unicode_nfc.h"

namespace shoal::tokenizer {
namespace {

constexpr int kMaxDepth = 8;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

Expected<HfNormalizer> HfNormalizer::parse(JsonElement element, std::string_view source) {
  HfNormalizer normalizer;
  SHOAL_TRY(normalizer.add(element, source, 0));
  return normalizer;
}

Status HfNormalizer::add(JsonElement element, std::string_view source, int depth) {
  const std::string type = json_string(element, "type");
  if (type == "Sequence" && depth < kMaxDepth) {
    simdjson::dom::array parts;
    if (element["normalizers"].get(parts))
      return hf_corrupt(source, "normalizer Sequence has no list of normalizers");
    for (const JsonElement part : parts) SHOAL_TRY(add(part, source, depth + 1));
    return {};
  }
  if (type == "NFC") {
    steps_.push_back({Kind::kNfc, "", "", std::nullopt});
  } else if (type == "Prepend") {
    steps_.push_back({Kind::kPrepend, "", json_string(element, "prepend"), std::nullopt});
  } else if (type == "Strip") {
    steps_.push_back({Kind::kStrip, "", "", std::nullopt, json_bool(element, "strip_left", false),
                      json_bool(element, "strip_right", false)});
  } else if (type == "Replace") {
    JsonElement pattern;
    if (element["pattern"].get(pattern)) return hf_corrupt(source, "normalizer Replace has no pattern");
    if (json_has(pattern, "String")) {
      steps_.push_back(
          {Kind::kReplace, json_string(pattern, "String"), json_string(element, "content"), std::nullopt});
    } else {
      SHOAL_ASSIGN(regex, Regex::compile(json_string(pattern, "Regex")));
      steps_.push_back({Kind::kReplaceRegex, "", json_string(element, "content"), std::move(regex)});
    }
  } else {
    return hf_unsupported(source, "normalizer " + in_quotes(type) +
                                      " is not supported; known: Sequence, Prepend, Replace, NFC, Strip");
  }
  return {};
}

Expected<std::string> HfNormalizer::apply(std::string_view text) const {
  std::string now(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kNfc:
        now = to_nfc(now);
        break;
      case Kind::kPrepend:
        if (!now.empty()) now.insert(0, step.content);
        break;
      case Kind::kStrip:
        while (step.right && !now.empty() && is_space(now.back())) now.pop_back();
        if (step.left) {
          std::size_t n = 0;
          while (n < now.size() && is_space(now[n])) ++n;
          now.erase(0, n);
        }
        break;
      case Kind::kReplace: {
        if (step.pattern.empty()) break;
        std::string next;
        std::size_t done = 0;
        for (std::size_t at; (at = now.find(step.pattern, done)) != std::string::npos;
             done = at + step.pattern.size()) {
          next.append(now, done, at - done);
          next += step.content;
        }
        next.append(now, done);
        now = std::move(next);
        break;
      }
      case Kind::kReplaceRegex: {
        std::string next;
        std::size_t done = 0;
        for (Regex::Match match{};;) {
          SHOAL_ASSIGN(found, step.regex->find(now, done, match));
          if (!found || match.begin == match.end) break;
          next.append(now, done, match.begin - done);
          next += step.content;
          done = match.end;
        }
        next.append(now, done);
        now = std::move(next);
        break;
      }
    }
  }
  return now;
}

}  // namespace shoal::tokenizer
