#include "tokenizer/hf_normalizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/in_quotes.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

constexpr int kMaxDepth = 8;
constexpr std::string_view kKnown =
    "Sequence, Prepend, Replace, Strip, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, BertNormalizer, "
    "ByteLevel, Precompiled";

std::optional<NormalForm> form_of(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {{{"NFC", NormalForm::kNfc},
                                                                              {"NFD", NormalForm::kNfd},
                                                                              {"NFKC", NormalForm::kNfkc},
                                                                              {"NFKD", NormalForm::kNfkd}}};
  for (const auto& [name, form] : kForms) {
    if (name == type) return form;
  }
  return std::nullopt;
}

// Each character by itself: a capital sigma never becomes a final one here.
std::string lowercase(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    out += jinja::to_lower(text.substr(begin, at - begin));
  }
  return out;
}

// SentencePiece's NMT rules: control characters go, unusual white space becomes a space.
std::string nmt(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
      continue;
    const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    append_utf8(space ? U' ' : c, out);
  }
  return out;
}

bool is_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string space_around_cjk(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (is_cjk(c)) out += ' ';
    append_utf8(c, out);
    if (is_cjk(c)) out += ' ';
  }
  return out;
}

std::string byte_level(std::string_view text) {
  std::string out;
  for (const char c : text) out += byte_character(static_cast<std::uint8_t>(c));
  return out;
}

std::string replace_all(const std::string& text, std::string_view pattern, std::string_view content) {
  if (pattern.empty()) return text;
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(pattern, done)) != std::string::npos; done = at + pattern.size()) {
    out.append(text, done, at - done);
    out += content;
  }
  out.append(text, done);
  return out;
}

// replacement(match) for each match that is not empty.
template <typename Replacement>
Expected<std::string> replace_matches(const Regex& regex, const std::string& text, Replacement replacement) {
  std::string out;
  std::size_t done = 0;
  for (Regex::Match match{};;) {
    SHOAL_ASSIGN(found, regex.find(text, done, match));
    if (!found || match.begin == match.end) break;
    out.append(text, done, match.begin - done);
    out += replacement(std::string_view(text).substr(match.begin, match.end - match.begin));
    done = match.end;
  }
  out.append(text, done);
  return out;
}

// Unicode's White_Space, which Python's has four separators beyond.
bool is_white(char32_t c) { return jinja::is_space(c) && !(c >= 0x1C && c <= 0x1F); }

std::string strip(std::string_view text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0;  // of what stays
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    if (is_white(next_code_point(text, at))) continue;
    begin = std::min(begin, start);
    end = at;
  }
  if (end == 0) return left || right ? std::string() : std::string(text);
  if (!left) begin = 0;
  return std::string(text.substr(begin, right ? end - begin : std::string_view::npos));
}

// A cluster of under 6 bytes is looked up whole, then each of its characters.
std::string map_cluster(const PrecompiledMap& map, std::string_view cluster) {
  if (cluster.size() < 6) {
    if (const auto text = map.find(cluster)) return std::string(*text);
  }
  std::string out;
  for (std::size_t at = 0; at < cluster.size();) {
    const std::size_t begin = at;
    next_code_point(cluster, at);
    const std::string_view character = cluster.substr(begin, at - begin);
    out += map.find(character).value_or(character);
  }
  return out;
}

}  // namespace

Expected<HfNormalizer> HfNormalizer::parse(JsonElement element, std::string_view source) {
  HfNormalizer normalizer;
  SHOAL_TRY(normalizer.add(element, source, 0));
  return normalizer;
}

void HfNormalizer::add(Kind kind) {
  Step step;
  step.kind = kind;
  steps_.push_back(std::move(step));
}

Status HfNormalizer::add_removal(Kind kind, std::string_view pattern) {
  SHOAL_ASSIGN(regex, Regex::compile(pattern));
  add(kind);
  steps_.back().regex = std::move(regex);
  return {};
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
  if (const auto form = form_of(type)) {
    add(Kind::kForm);
    steps_.back().form = *form;
  } else if (type == "Prepend") {
    add(Kind::kPrepend);
    steps_.back().content = json_string(element, "prepend");
  } else if (type == "Strip") {
    add(Kind::kStrip);
    steps_.back().left = json_bool(element, "strip_left", false);
    steps_.back().right = json_bool(element, "strip_right", false);
  } else if (type == "Replace") {
    return add_replace(element, source);
  } else if (type == "Lowercase") {
    add(Kind::kLowercase);
  } else if (type == "StripAccents") {
    return add_removal(Kind::kStripAccents, R"(\p{M}+)");
  } else if (type == "Nmt") {
    add(Kind::kNmt);
  } else if (type == "BertNormalizer") {
    return add_bert(element);
  } else if (type == "ByteLevel") {
    add(Kind::kByteLevel);
  } else if (type == "Precompiled") {
    return add_precompiled(element, source);
  } else {
    return hf_unsupported(
        source, "normalizer " + in_quotes(type) + " is not supported; known: " + std::string(kKnown));
  }
  return {};
}

Status HfNormalizer::add_replace(JsonElement element, std::string_view source) {
  JsonElement pattern;
  if (element["pattern"].get(pattern)) return hf_corrupt(source, "normalizer Replace has no pattern");
  if (json_has(pattern, "String")) {
    add(Kind::kReplace);
    steps_.back().pattern = json_string(pattern, "String");
  } else {
    SHOAL_TRY(add_removal(Kind::kReplaceRegex, json_string(pattern, "Regex")));
  }
  steps_.back().content = json_string(element, "content");
  return {};
}

Status HfNormalizer::add_bert(JsonElement element) {
  // What is cleaned away: control characters but tab and line ends, those not assigned, the replacement
  // character.
  if (json_bool(element, "clean_text", true))
    SHOAL_TRY(add_removal(Kind::kCleanText, R"([^\P{C}\t\n\r]|\x{FFFD}|\s)"));
  if (json_bool(element, "handle_chinese_chars", true)) add(Kind::kSpaceAroundCjk);
  const bool lower = json_bool(element, "lowercase", true);
  if (json_bool(element, "strip_accents", lower)) {
    add(Kind::kForm);
    steps_.back().form = NormalForm::kNfd;
    SHOAL_TRY(add_removal(Kind::kStripNonspacing, R"(\p{Mn}+)"));
  }
  if (lower) add(Kind::kLowercase);
  return {};
}

Status HfNormalizer::add_precompiled(JsonElement element, std::string_view source) {
  const auto bytes = decode_base64(json_string(element, "precompiled_charsmap"));
  if (!bytes) return hf_corrupt(source, "normalizer Precompiled: precompiled_charsmap is not base64");
  auto map = PrecompiledMap::parse(*bytes);
  if (!map) return hf_corrupt(source, "normalizer Precompiled: " + map.error().message());
  SHOAL_TRY(add_removal(Kind::kPrecompiled, R"(\X)"));
  steps_.back().map = std::make_shared<const PrecompiledMap>(std::move(*map));
  return {};
}

Expected<std::string> HfNormalizer::apply(std::string_view text) const {
  std::string now(text);
  for (const Step& step : steps_) {
    SHOAL_ASSIGN(next, apply(step, std::move(now)));
    now = std::move(next);
  }
  return now;
}

Expected<std::string> HfNormalizer::apply(const Step& step, std::string text) {
  switch (step.kind) {
    case Kind::kForm:
      return normalize(text, step.form);
    case Kind::kPrepend:
      return text.empty() ? text : step.content + text;
    case Kind::kStrip:
      return strip(text, step.left, step.right);
    case Kind::kReplace:
      return replace_all(text, step.pattern, step.content);
    case Kind::kReplaceRegex:
    case Kind::kStripAccents:
    case Kind::kStripNonspacing:
      return replace_matches(*step.regex, text,
                             [&](std::string_view) { return std::string_view(step.content); });
    case Kind::kLowercase:
      return lowercase(text);
    case Kind::kNmt:
      return nmt(text);
    case Kind::kCleanText:
      // White space becomes a space, but for the control characters among it that are not tab or line end.
      return replace_matches(*step.regex, text, [](std::string_view match) {
        std::size_t at = 0;
        const char32_t c = next_code_point(match, at);
        const bool ascii_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        return std::string_view(ascii_space || (c >= 0xA0 && jinja::is_space(c)) ? " " : "");
      });
    case Kind::kSpaceAroundCjk:
      return space_around_cjk(text);
    case Kind::kByteLevel:
      return byte_level(text);
    case Kind::kPrecompiled:
      return replace_matches(*step.regex, text,
                             [&](std::string_view cluster) { return map_cluster(*step.map, cluster); });
  }
  return text;
}

}  // namespace shoal::tokenizer
