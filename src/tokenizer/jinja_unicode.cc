#include "tokenizer/jinja_unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>

#include "tokenizer/jinja_case_table.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Pattern = std::unique_ptr<pcre2_code, CodeDeleter>;

Pattern compile(const char* text) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  return Pattern(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr));
}

const pcre2_code* pattern_of(CharClass wanted) {
  // In the order of CharClass. Python's isnumeric also takes CJK numerals, which are letters here; isdigit
  // takes superscripts, which are the No characters named.
  static const std::array<Pattern, 8> patterns = {
      compile(R"(\p{L})"),
      compile(R"(\p{N})"),
      compile(R"([\p{Nd}\x{B2}\x{B3}\x{B9}\x{2070}\x{2074}-\x{2079}\x{2080}-\x{2089}\x{2460}-\x{2468}])"),
      compile(R"(\p{Nd})"),
      compile(R"(\p{Lu})"),
      compile(R"([\p{Ll}\x{AA}\x{BA}])"),
      compile(R"([\p{Lu}\p{Ll}\p{Lt}])"),
      compile(R"([\p{C}\p{Z}])"),
  };
  return patterns[static_cast<std::size_t>(wanted)].get();
}

bool matches(char32_t c, CharClass wanted) {
  const pcre2_code* code = pattern_of(wanted);
  if (code == nullptr) return false;
  std::string text;
  append_utf8(c, text);
  thread_local const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  return data && pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                             PCRE2_NO_UTF_CHECK, data.get(), nullptr) > 0;
}

char32_t map_case(char32_t c, std::span<const CaseRun> runs) {
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t v, const CaseRun& run) { return v < run.first; });
  if (after == runs.begin()) return c;
  const CaseRun& run = *std::prev(after);
  if (c > run.last || (c - run.first) % run.stride != 0) return c;
  return static_cast<char32_t>(static_cast<std::int64_t>(c) + run.delta);
}

void append_upper(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (c == 0xDF) {
    out += "SS";
  } else if (c >= 0xFB00 && c <= 0xFB06) {  // the Latin ligatures
    static constexpr std::array<const char*, 7> kLigatures = {"FF", "FI", "FL", "FFI", "FFL", "ST", "ST"};
    out += kLigatures[c - 0xFB00];
  } else {
    append_utf8(map_case(c, upper_runs()), out);
  }
}

// end_of_word: the character ends a word, where a capital sigma becomes a final one.
void append_lower(char32_t c, bool end_of_word, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    out += "i\xCC\x87";
  } else if (c == 0x3A3 && end_of_word) {
    append_utf8(0x3C2, out);
  } else {
    append_utf8(map_case(c, lower_runs()), out);
  }
}

// previous: the character before text, 0 where there is none.
void append_lower_all(std::string_view text, char32_t previous, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    bool end_of_word = false;
    if (c == 0x3A3 && previous != 0 && in_class(previous, CharClass::kCased)) {
      std::size_t ahead = at;
      end_of_word = at >= text.size() || !in_class(next_code_point(text, ahead), CharClass::kCased);
    }
    append_lower(c, end_of_word, out);
    previous = c;
  }
}

// Offset of the last character of a non-empty text.
std::size_t last_char(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

template <typename Wanted>
std::string_view strip_if(std::string_view text, Sides sides, Wanted wanted) {
  while (sides != Sides::kRight && !text.empty()) {
    std::size_t next = 0;
    if (!wanted(next_code_point(text, next))) break;
    text.remove_prefix(next);
  }
  while (sides != Sides::kLeft && !text.empty()) {
    const std::size_t start = last_char(text);
    std::size_t at = start;
    if (!wanted(next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

}  // namespace

bool in_class(char32_t c, CharClass wanted) {
  if (c >= 0x80) return matches(c, wanted);
  const bool upper = c >= 'A' && c <= 'Z';
  const bool lower = c >= 'a' && c <= 'z';
  switch (wanted) {
    case CharClass::kLetter:
    case CharClass::kCased:
      return upper || lower;
    case CharClass::kNumber:
    case CharClass::kDigit:
    case CharClass::kDecimal:
      return c >= '0' && c <= '9';
    case CharClass::kUpper:
      return upper;
    case CharClass::kLower:
      return lower;
    case CharClass::kUnprintable:
      return c < 0x20 || c == 0x7F;
  }
  return false;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::size_t count_chars(std::string_view text) {
  std::size_t chars = 0;
  for (const char c : text) chars += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return chars;
}

std::size_t char_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += utf8_length(text[at]);
  return std::min(at, text.size());
}

std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_upper(next_code_point(text, at), out);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_lower_all(text, 0, out);
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::size_t at = 0;
  const char32_t first = next_code_point(text, at);
  std::string out;
  out.reserve(text.size());
  // Title case of the one letter Python treats apart here: "ß" becomes "Ss".
  if (first == 0xDF) {
    out += "Ss";
  } else {
    append_upper(first, out);
  }
  append_lower_all(text.substr(at), first, out);
  return out;
}

std::string title_words(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (in_word) {
      append_lower(c, false, out);
    } else if (c == 0xDF) {
      out += "Ss";
    } else {
      append_upper(c, out);
    }
    in_word = in_class(c, CharClass::kCased);
  }
  return out;
}

std::string_view strip_space(std::string_view text, Sides sides) { return strip_if(text, sides, is_space); }

std::string_view strip_chars(std::string_view text, std::string_view chars, Sides sides) {
  std::u32string set;
  for (std::size_t at = 0; at < chars.size();) set.push_back(next_code_point(chars, at));
  std::sort(set.begin(), set.end());
  return strip_if(text, sides, [&set](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

}  // namespace shoal::tokenizer::jinja
