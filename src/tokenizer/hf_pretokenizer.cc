#include "tokenizer/hf_pretokenizer.h"

#include <utility>

#include "tokenizer/in_quotes.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

constexpr int kMaxDepth = 8;
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// ASCII's symbols count as punctuation.
constexpr std::string_view kPunctuation = R"([\p{P}!-/:-@\[-`{-~])";
// Runs of word characters as Unicode's regular expressions define them (alphabetic, marks, digits,
// connectors, joiners), and runs of all else but white space.
constexpr std::string_view kWordsOrSymbols =
    R"([\p{L}\p{Nl}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189}]+|[^\p{L}\p{Nl}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9})"
    R"(\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}\s]+)";

struct Span {
  std::string_view text;
  bool match;
};

Expected<bool> find_literal(std::string_view word, std::size_t from, std::string_view literal,
                            Regex::Match& match) {
  const std::size_t at = literal.empty() ? std::string_view::npos : word.find(literal, from);
  if (at == std::string_view::npos) return false;
  match = {at, at + literal.size()};
  return true;
}

}  // namespace

Expected<HfPretokenizer> HfPretokenizer::parse(JsonElement element, std::string_view source) {
  HfPretokenizer pre;
  SHOAL_TRY(pre.add(element, source, 0));
  return pre;
}

Status HfPretokenizer::add(JsonElement element, std::string_view source, int depth) {
  const std::string type = json_string(element, "type");
  if (byte_level_) return hf_unsupported(source, "pre-tokenizer " + in_quotes(type) + " after ByteLevel");
  if (type == "Sequence" && depth < kMaxDepth) {
    simdjson::dom::array parts;
    if (element["pretokenizers"].get(parts)) return hf_corrupt(source, "pre_tokenizer Sequence has no list");
    for (const JsonElement part : parts) SHOAL_TRY(add(part, source, depth + 1));
    return {};
  }
  if (type == "Split") return add_split(element, source);
  if (type == "Metaspace") return add_metaspace(element, source);
  if (type == "ByteLevel") {
    if (json_bool(element, "add_prefix_space", true))
      steps_.push_back({Kind::kPrefixSpace, std::nullopt, ""});
    if (json_bool(element, "use_regex", true)) {
      SHOAL_ASSIGN(regex, Regex::compile(kGpt2Words));
      steps_.push_back({Kind::kSplit, std::move(regex), ""});
    }
    byte_level_ = true;
    return {};
  }
  if (type == "Digits") {
    return add_pattern(json_bool(element, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)",
                       Behavior::kIsolated);
  }
  if (type == "Whitespace") return add_pattern(kWordsOrSymbols, Behavior::kRemoved, true);
  if (type == "WhitespaceSplit") return add_pattern(R"(\s)", Behavior::kRemoved);
  if (type == "Punctuation") {
    SHOAL_ASSIGN(behavior, behavior_of(element, source, "Isolated"));
    return add_pattern(kPunctuation, behavior);
  }
  if (type == "BertPreTokenizer") {
    SHOAL_TRY(add_pattern(R"(\s)", Behavior::kRemoved));
    return add_pattern(kPunctuation, Behavior::kIsolated);
  }
  if (type == "CharDelimiterSplit") {
    Step step{Kind::kSplit, std::nullopt, json_string(element, "delimiter"), Behavior::kRemoved};
    if (step.literal.empty()) return hf_corrupt(source, "pre-tokenizer CharDelimiterSplit has no delimiter");
    steps_.push_back(std::move(step));
    return {};
  }
  if (type == "FixedLength") {
    const std::int64_t length = json_int(element, "length", 5);
    if (length < 1) return hf_corrupt(source, "pre-tokenizer FixedLength has a length below 1");
    Step step{Kind::kFixedLength, std::nullopt, ""};
    step.length = static_cast<std::size_t>(length);
    steps_.push_back(std::move(step));
    return {};
  }
  return hf_unsupported(source,
                        "pre-tokenizer " + in_quotes(type) +
                            " is not supported; known: Sequence, Split, ByteLevel, Metaspace, Digits, "
                            "Whitespace, WhitespaceSplit, Punctuation, CharDelimiterSplit, "
                            "BertPreTokenizer, FixedLength");
}

Status HfPretokenizer::add_pattern(std::string_view pattern, Behavior behavior, bool invert) {
  SHOAL_ASSIGN(regex, Regex::compile(pattern));
  steps_.push_back({Kind::kSplit, std::move(regex), "", behavior, invert});
  return {};
}

Status HfPretokenizer::add_split(JsonElement element, std::string_view source) {
  Step step{Kind::kSplit, std::nullopt, ""};
  JsonElement pattern;
  if (element["pattern"].get(pattern)) return hf_corrupt(source, "pre-tokenizer Split has no pattern");
  if (json_has(pattern, "String")) {
    step.literal = json_string(pattern, "String");
  } else {
    SHOAL_ASSIGN(regex, Regex::compile(json_string(pattern, "Regex")));
    step.regex = std::move(regex);
  }
  SHOAL_ASSIGN(behavior, behavior_of(element, source, ""));
  step.behavior = behavior;
  step.invert = json_bool(element, "invert", false);
  steps_.push_back(std::move(step));
  return {};
}

Expected<HfPretokenizer::Behavior> HfPretokenizer::behavior_of(JsonElement element, std::string_view source,
                                                               std::string_view fallback) {
  constexpr std::pair<std::string_view, Behavior> kKnown[] = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  const std::string behavior = json_string(element, "behavior", fallback);
  for (const auto& [name, value] : kKnown) {
    if (behavior == name) return value;
  }
  return hf_unsupported(source, "pre-tokenizer " + json_string(element, "type") +
                                    " has the unknown behavior " + in_quotes(behavior));
}

Status HfPretokenizer::add_metaspace(JsonElement element, std::string_view source) {
  Step step{Kind::kMetaspace, std::nullopt, ""};
  step.mark = json_string(element, "replacement", "\u2581");
  step.split_marks = json_bool(element, "split", true);
  // Older files have add_prefix_space instead of a scheme.
  const std::string scheme = json_string(element, "prepend_scheme",
                                         json_bool(element, "add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") {
    step.prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend = Prepend::kFirst;
  } else if (scheme != "never") {
    return hf_unsupported(source, "Metaspace has the unknown prepend_scheme " + in_quotes(scheme));
  }
  steps_.push_back(std::move(step));
  return {};
}

Status HfPretokenizer::split_one(const Step& step, std::string_view word,
                                 std::vector<std::string_view>& out) {
  std::vector<Span> spans;
  std::size_t done = 0;
  for (Regex::Match match{}; done < word.size(); done = match.end) {
    SHOAL_ASSIGN(found, step.regex ? step.regex->find(word, done, match)
                                   : find_literal(word, done, step.literal, match));
    if (!found || match.begin == match.end) break;
    if (match.begin > done) spans.push_back({word.substr(done, match.begin - done), step.invert});
    spans.push_back({word.substr(match.begin, match.end - match.begin), !step.invert});
  }
  if (done < word.size()) spans.push_back({word.substr(done), step.invert});

  const auto join = [](std::string_view a, std::string_view b) {
    return std::string_view(a.data(), a.size() + b.size());
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const bool after_match = i > 0 && spans[i - 1].match;
    switch (step.behavior) {
      case Behavior::kIsolated:
        out.push_back(spans[i].text);
        break;
      case Behavior::kRemoved:
        if (!spans[i].match) out.push_back(spans[i].text);
        break;
      case Behavior::kMergedWithPrevious:
        if (spans[i].match && i > 0 && !after_match) {
          out.back() = join(out.back(), spans[i].text);
        } else {
          out.push_back(spans[i].text);
        }
        break;
      case Behavior::kMergedWithNext:
        if (!spans[i].match && after_match) {
          out.back() = join(out.back(), spans[i].text);
        } else {
          out.push_back(spans[i].text);
        }
        break;
      case Behavior::kContiguous:
        if (i > 0 && spans[i].match == after_match) {
          out.back() = join(out.back(), spans[i].text);
        } else {
          out.push_back(spans[i].text);
        }
        break;
    }
  }
  return {};
}

void HfPretokenizer::cut_fixed(const Step& step, std::string_view word, std::vector<std::string_view>& out) {
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    for (std::size_t n = 0; n < step.length && at < word.size(); ++n) at += utf8_length(word[at]);
    out.push_back(word.substr(begin, at - begin));
  }
}

void HfPretokenizer::mark_spaces(const Step& step, std::string_view word, bool first, Words& out) {
  std::string marked;
  for (const char c : word) {
    if (c == ' ') {
      marked += step.mark;
    } else {
      marked += c;
    }
  }
  const bool prepend = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && first);
  if (prepend && !marked.starts_with(step.mark)) marked.insert(0, step.mark);
  const std::string_view text = out.owned.emplace_back(std::move(marked));
  if (!step.split_marks || step.mark.empty()) {
    out.views.push_back(text);
    return;
  }
  // A word begins at each mark.
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = text.find(step.mark, at)) != std::string_view::npos;
       at += step.mark.size()) {
    if (at > begin) out.views.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  if (begin < text.size()) out.views.push_back(text.substr(begin));
}

Expected<Words> HfPretokenizer::split(std::string_view text, bool first) const {
  Words words;
  if (!text.empty()) words.views.push_back(text);
  for (const Step& step : steps_) {
    std::vector<std::string_view> before = std::exchange(words.views, {});
    words.views.reserve(before.size());
    bool at_start = first;
    for (const std::string_view word : before) {
      switch (step.kind) {
        case Kind::kSplit:
          SHOAL_TRY(split_one(step, word, words.views));
          break;
        case Kind::kPrefixSpace:
          words.views.push_back(word.starts_with(' ') ? word
                                                      : words.owned.emplace_back(" " + std::string(word)));
          break;
        case Kind::kFixedLength:
          cut_fixed(step, word, words.views);
          break;
        case Kind::kMetaspace:
          mark_spaces(step, word, at_start, words);
          break;
      }
      at_start = false;
    }
  }
  return words;
}

}  // namespace shoal::tokenizer
