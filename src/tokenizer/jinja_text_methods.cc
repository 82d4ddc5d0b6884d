// Methods of texts, other than those that split and join (jinja_split_methods.cc).

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_split.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Value mapped(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "this method", {});
  heap.step(self.str().size() / 16);
  return make_text(heap, kMap(self.str()));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    const std::string_view one = text.substr(start, at - start);
    out += in_class(c, CharClass::kUpper) ? to_lower(one) : to_upper(one);
  }
  return out;
}

template <Sides kSides>
Value strip(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "strip", {"chars"});
  const std::string& text = self.str();
  const std::string_view rest =
      parameters.has_value(0) ? strip_chars(text, parameters.text(0), kSides) : strip_space(text, kSides);
  heap.step((text.size() - rest.size()) / 16);
  if (rest.size() == text.size()) return self.text()->markup ? make_text(heap, text) : self;
  return make_text(heap, std::string(rest));
}

// The part of a text that methods with start and stop look at, and how many characters stand before it.
struct Window {
  std::string_view text;
  std::int64_t before = 0;
  bool valid = true;
};

Window window_of(const Value& self, const Parameters& parameters, std::size_t start_at) {
  if (!parameters.has_value(start_at) && !parameters.has_value(start_at + 1)) return {self.str(), 0, true};
  const std::int64_t size = length(self);
  const auto clamp = [size](std::int64_t index) {
    return std::max<std::int64_t>(index < 0 ? index + size : index, 0);
  };
  const std::int64_t start = clamp(parameters.integer_or(start_at, 0));
  const std::int64_t stop = std::min(clamp(parameters.integer_or(start_at + 1, size)), size);
  if (start > stop) return {{}, 0, false};
  const std::string_view text = self.str();
  const std::size_t from = char_offset(text, static_cast<std::size_t>(start));
  const std::string_view rest = text.substr(from);
  return {rest.substr(0, char_offset(rest, static_cast<std::size_t>(stop - start))), start, true};
}

template <bool kStart>
Value has_affix(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, kStart ? "startswith" : "endswith", {"prefix", "start", "end"});
  const Window window = window_of(self, parameters, 1);
  const auto matches = [&](const std::string& affix) {
    heap.step(1 + affix.size() / 256);
    return window.valid && (kStart ? window.text.starts_with(affix) : window.text.ends_with(affix));
  };
  const List* tuple = parameters.at(0).list();
  if (tuple == nullptr || tuple->kind != ListKind::kTuple) return Value::boolean(matches(parameters.text(0)));
  for (const Value& affix : tuple->items) {
    if (!affix.is_text()) fail("a tuple for startswith or endswith must only contain str");
    if (matches(affix.str())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kPrefix>
Value remove_affix(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, kPrefix ? "removeprefix" : "removesuffix", {"affix"});
  std::string_view text = self.str();
  const std::string& affix = parameters.text(0);
  heap.step(affix.size() / 256);
  if (affix.empty()) return self;
  if (kPrefix ? !text.starts_with(affix) : !text.ends_with(affix)) return self;
  text = kPrefix ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size());
  return make_text(heap, std::string(text));
}

template <bool kFirst>
std::int64_t position(Heap& heap, const Value& self, const Parameters& parameters) {
  const Window window = window_of(self, parameters, 1);
  const std::string& wanted = parameters.text(0);
  if (!window.valid) return -1;
  const std::size_t at = kFirst ? find_text(window.text, wanted, 0) : find_last_text(window.text, wanted);
  heap.step(window.text.size() / 64);
  if (at == std::string_view::npos) return -1;
  return window.before + static_cast<std::int64_t>(count_chars(window.text.substr(0, at)));
}

template <bool kFirst>
Value find(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "find", {"sub", "start", "end"});
  return Value::integer(position<kFirst>(heap, self, parameters));
}

template <bool kFirst>
Value index(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "index", {"sub", "start", "end"});
  const std::int64_t at = position<kFirst>(heap, self, parameters);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}

Value count(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "count", {"sub", "start", "end"});
  const Window window = window_of(self, parameters, 1);
  const std::string& wanted = parameters.text(0);
  heap.step(window.text.size() / 64);
  if (!window.valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<std::int64_t>(count_chars(window.text)) + 1);
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = find_text(window.text, wanted, at)) != std::string_view::npos;
       at += wanted.size()) {
    heap.step();
    ++found;
  }
  return Value::integer(found);
}

Value replace(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "replace", {"old", "new", "count"});
  return make_text(heap, replace_text(heap, self.str(), parameters.text(0), parameters.text(1),
                                      parameters.integer_or(2, -1)));
}

Value format(Heap& heap, const Value& self, Arguments& arguments) {
  return make_text(heap, format_braces(heap, self.str(), arguments));
}

Value format_map(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "format_map", {"mapping"});
  const Dict* dict = parameters.at(0).dict();
  if (dict == nullptr) fail("format_map() takes a mapping");
  Arguments named;
  for (const Dict::Entry& entry : dict->entries) {
    heap.step();
    if (entry.key.is_text()) named.named.emplace_back(entry.key.text(), entry.value);
  }
  return make_text(heap, format_braces(heap, self.str(), named));
}

template <char kAlign>
Value justify(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "this method", {"width", "fillchar"});
  FormatSpec spec;
  spec.align = kAlign;
  spec.width = std::min<std::int64_t>(parameters.integer(0), 1'000'000'000);
  if (parameters.has(1)) {
    spec.fill = parameters.text(1);
    if (count_chars(spec.fill) != 1) fail("the fill character must be exactly one character long");
  }
  if (kAlign == '^') return make_text(heap, centered(heap, self.str(), spec));
  return make_text(heap, pad(heap, self.str(), spec, kAlign));
}

Value zero_fill(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "zfill", {"width"});
  FormatSpec spec;
  spec.align = '=';
  spec.fill = "0";
  spec.width = std::min<std::int64_t>(parameters.integer(0), 1'000'000'000);
  return make_text(heap, pad(heap, self.str(), spec, '='));
}

// isdigit and its like: every character of a class, at least one.
template <CharClass kFirst, CharClass kOrElse>
Value all_in(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "this method", {});
  const std::string& text = self.str();
  heap.step(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!in_class(c, kFirst) && !in_class(c, kOrElse)) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

// isupper, islower: no cased character of the other case, at least one of this.
template <CharClass kWanted>
Value all_cased(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "this method", {});
  heap.step(self.str().size());
  return Value::boolean(has_only_case(self.str(), kWanted));
}

Value is_space_text(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "isspace", {});
  heap.step(self.str().size() / 16);
  return Value::boolean(!self.str().empty() && strip_space(self.str(), Sides::kLeft).empty());
}

Value is_ascii_text(Heap&, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "isascii", {});
  return Value::boolean(self.text()->ascii);
}

}  // namespace

MethodFunction find_text_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> table = {
      {"strip", strip<Sides::kBoth>},
      {"lstrip", strip<Sides::kLeft>},
      {"rstrip", strip<Sides::kRight>},
      {"startswith", has_affix<true>},
      {"endswith", has_affix<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"upper", mapped<to_upper>},
      {"lower", mapped<to_lower>},
      {"casefold", mapped<to_lower>},
      {"title", mapped<title_words>},
      {"capitalize", mapped<capitalize>},
      {"swapcase", mapped<swap_case>},
      {"find", find<true>},
      {"rfind", find<false>},
      {"index", index<true>},
      {"rindex", index<false>},
      {"count", count},
      {"replace", replace},
      {"format", format},
      {"format_map", format_map},
      {"ljust", justify<'<'>},
      {"rjust", justify<'>'>},
      {"center", justify<'^'>},
      {"zfill", zero_fill},
      {"isdigit", all_in<CharClass::kDigit, CharClass::kDigit>},
      {"isdecimal", all_in<CharClass::kDecimal, CharClass::kDecimal>},
      {"isnumeric", all_in<CharClass::kNumber, CharClass::kNumber>},
      {"isalpha", all_in<CharClass::kLetter, CharClass::kLetter>},
      {"isalnum", all_in<CharClass::kLetter, CharClass::kNumber>},
      {"isupper", all_cased<CharClass::kUpper>},
      {"islower", all_cased<CharClass::kLower>},
      {"isspace", is_space_text},
      {"isascii", is_ascii_text},
  };
  const auto found = table.find(name);
  return found != table.end() ? found->second : find_split_method(name);
}

}  // namespace shoal::tokenizer::jinja
