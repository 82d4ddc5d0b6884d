// Filters that make text: case, trimming, escaping, indenting, JSON.

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_json.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_split.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Value mapped(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "this filter", {});
  const Text text = text_of(heap, value);
  heap.step(text->bytes.size() / 16);
  return make_text(heap, kMap(text->bytes));
}

// First letter of every word upper, the rest lower; words begin after space - ( { [ <.
std::string title(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t start = at;
    bool separator = false;
    std::size_t end = at;
    while (at < text.size() && !separator) {
      end = at;
      const char32_t c = next_code_point(text, at);
      separator = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
      if (!separator) end = at;
    }
    const std::string_view word = text.substr(start, end - start);
    const std::size_t first = char_offset(word, 1);
    out += to_upper(word.substr(0, first)) + to_lower(word.substr(first));
    out.append(text.substr(end, at - end));
  }
  return out;
}

Value trim(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "trim", {"chars"});
  const Text text = text_of(heap, value);
  const std::string_view rest = parameters.has_value(0)
                                    ? strip_chars(text->bytes, parameters.text(0), Sides::kBoth)
                                    : strip_space(text->bytes, Sides::kBoth);
  heap.step((text->bytes.size() - rest.size()) / 16);
  return rest.size() == text->bytes.size() ? Value(text) : make_text(heap, std::string(rest));
}

Value replace(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "replace", {"old", "new", "count"});
  return make_text(heap, replace_text(heap, str_of(heap, value), str_of(heap, parameters.at(0)),
                                      str_of(heap, parameters.at(1)), parameters.integer_or(2, -1)));
}

Value string(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "string", {});
  return text_of(heap, value);
}

Value safe(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "safe", {});
  return heap.text(str_of(heap, value), true);
}

Value escape(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "escape", {});
  if (value.is_text() && value.text()->markup) return value;
  return heap.text(escape_html(str_of(heap, value)), true);
}

Value force_escape(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "forceescape", {});
  return heap.text(escape_html(str_of(heap, value)), true);
}

Value indent(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "indent", {"width", "first", "blank"});
  if (!value.is_text()) {
    require_defined(value);
    fail(std::string("indent takes a string, not ") + type_name(value));
  }
  std::string indention(4, ' ');
  if (parameters.has(0) && parameters.at(0).is_text()) {
    indention = parameters.text(0);
  } else if (parameters.has(0)) {
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(parameters.integer(0), 0));
    heap.check_text(width);
    indention.assign(width, ' ');
  }
  const bool first = parameters.flag_or(1, false);
  const bool blank = parameters.flag_or(2, false);
  Output out(heap);
  // With the newline that Jinja appends first, a text that ends in one keeps it.
  const std::string text = value.str() + "\n";
  bool at_first = true;
  for (const std::string_view line : split_lines(heap, text, false)) {
    if (!at_first) out.append("\n");
    if (at_first ? first : (blank || !line.empty())) out.append(indention);
    out.append(line);
    at_first = false;
  }
  return make_text(heap, out.take());
}

Value center(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "center", {"width"});
  FormatSpec spec;
  spec.width = std::min<std::int64_t>(parameters.integer_or(0, 80), 1'000'000'000);
  return make_text(heap, centered(heap, str_of(heap, value), spec));
}

Value format(Heap& heap, const Value& value, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  const Text text = text_of(heap, value);
  if (arguments.named.empty()) {
    return make_text(
        heap, format_percent(heap, text->bytes, make_list(heap, arguments.positional, ListKind::kTuple)));
  }
  Dict* named = heap.make<Dict>();
  for (const auto& [name, argument] : arguments.named) named->set(heap, name, argument);
  return make_text(heap, format_percent(heap, text->bytes, named));
}

Value truncate(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const std::int64_t limit = parameters.integer_or(0, 255);
  const std::string end = parameters.has(2) ? parameters.text(2) : "...";
  const auto end_chars = static_cast<std::int64_t>(count_chars(end));
  const std::int64_t leeway = parameters.integer_or(3, 5);
  if (limit < end_chars) fail("truncate: the length must be at least " + std::to_string(end_chars));
  if (leeway < 0) fail("truncate: the leeway must not be negative");
  const std::int64_t chars = length(value);
  const Text text = text_of(heap, value);
  if (chars <= limit || chars - limit <= leeway) return text;
  std::string kept =
      text->bytes.substr(0, char_offset(text->bytes, static_cast<std::size_t>(limit - end_chars)));
  if (!parameters.flag_or(1, false)) kept.resize(std::min(kept.rfind(' '), kept.size()));
  return make_text(heap, kept + end);
}

Value word_count(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "wordcount", {});
  const Text text = text_of(heap, value);
  heap.step(text->bytes.size() / 16);
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text->bytes.size();) {
    const char32_t c = next_code_point(text->bytes, at);
    const bool word = c == '_' || in_class(c, CharClass::kLetter) || in_class(c, CharClass::kNumber);
    words += word && !in_word;
    in_word = word;
  }
  return Value::integer(words);
}

// Tags and comments out, runs of space to one.
Value strip_tags(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "striptags", {});
  const std::string text = str_of(heap, value);
  heap.step(text.size() / 16);
  std::string plain;
  bool tags_close = true;  // false once a search found no end: another would look through all the rest again
  bool comments_close = true;
  for (std::size_t at = 0; at < text.size();) {
    const bool comment = text.compare(at, 4, "<!--") == 0;
    bool& closes = comment ? comments_close : tags_close;
    std::size_t end = std::string::npos;
    if (text[at] == '<' && closes) {
      end = text.find(comment ? "-->" : ">", at);
      closes = end != std::string::npos;
    }
    if (end == std::string::npos) {
      plain.push_back(text[at++]);
    } else {
      at = end + (comment ? 3 : 1);
    }
  }
  Arguments none;
  const Value words = find_split_method("split")(heap, make_text(heap, plain), none);
  Arguments joined;
  joined.positional = {words};
  return find_split_method("join")(heap, make_text(heap, " "), joined);
}

void quote_url(std::string_view text, bool in_query, std::string& out) {
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !in_query);
    if (plain) {
      out.push_back(c);
    } else if (c == ' ' && in_query) {
      out.push_back('+');
    } else {
      constexpr const char* kHex = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
}

Value url_encode(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "urlencode", {});
  std::string out;
  if (value.is_text() || !is_iterable(value)) {
    quote_url(str_of(heap, value), false, out);
    return make_text(heap, out);
  }
  const Value pairs = value.dict() != nullptr ? find_dict_method("items")(heap, value, arguments) : value;
  for (const Value& pair : collect(heap, pairs)) {
    const std::vector<Value> parts = collect(heap, pair);
    if (parts.size() != 2) fail("urlencode takes a string, a dict or pairs");
    if (!out.empty()) out.push_back('&');
    quote_url(str_of(heap, parts[0]), true, out);
    out.push_back('=');
    quote_url(str_of(heap, parts[1]), true, out);
    heap.check_text(out.size());
  }
  return make_text(heap, out);
}

Value tojson(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = parameters.flag_or(0, false);
  style.sort_keys = parameters.flag_or(3, false);
  if (parameters.has_value(1)) {
    style.indented = true;
    style.item_separator = ",";
    if (parameters.at(1).is_text()) {
      style.indent = parameters.text(1);
    } else {
      const auto width = static_cast<std::size_t>(std::max<std::int64_t>(parameters.integer(1), 0));
      heap.check_text(width);
      style.indent.assign(width, ' ');
    }
  }
  if (parameters.has_value(2)) {
    const std::vector<Value> pair = collect(heap, parameters.at(2));
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text())
      fail("tojson: separators are two strings");
    style.item_separator = pair[0].str();
    style.key_separator = pair[1].str();
  }
  return make_text(heap, to_json(heap, value, style));
}

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> table = {
      {"upper", mapped<to_upper>},
      {"lower", mapped<to_lower>},
      {"capitalize", mapped<capitalize>},
      {"title", mapped<title>},
      {"trim", trim},
      {"replace", replace},
      {"string", string},
      {"safe", safe},
      {"e", escape},
      {"escape", escape},
      {"forceescape", force_escape},
      {"indent", indent},
      {"center", center},
      {"format", format},
      {"truncate", truncate},
      {"wordcount", word_count},
      {"striptags", strip_tags},
      {"urlencode", url_encode},
      {"tojson", tojson},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace shoal::tokenizer::jinja
