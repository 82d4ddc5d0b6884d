#include <algorithm>
#include <limits>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_split.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

// Line ends of str.splitlines: \n \v \f \r, the separators 0x1C to 0x1E, NEL, LS and PS.
bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

using Pieces = std::vector<std::string_view>;

Pieces split_at_spaces(Heap& heap, std::string_view text, std::int64_t limit) {
  Pieces pieces;
  for (text = strip_space(text, Sides::kLeft); !text.empty(); text = strip_space(text, Sides::kLeft)) {
    heap.step();
    if (limit-- == 0) {
      pieces.push_back(text);  // with its inner spaces and its end as they are
      break;
    }
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size() && !is_space(next_code_point(text, at));) end = at;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

Pieces split_at_spaces_from_right(Heap& heap, std::string_view text, std::int64_t limit) {
  if (limit < 0) return split_at_spaces(heap, text, limit);
  Pieces all = split_at_spaces(heap, text, -1);
  if (all.size() <= static_cast<std::size_t>(limit)) return all;
  const std::size_t joined = all.size() - static_cast<std::size_t>(limit);  // pieces that stay one
  // The first piece reaches from the start, its space included, to the end of the last one it swallows.
  const char* end = all[joined - 1].data() + all[joined - 1].size();
  Pieces pieces{std::string_view(text.data(), static_cast<std::size_t>(end - text.data()))};
  pieces.insert(pieces.end(), all.begin() + static_cast<std::ptrdiff_t>(joined), all.end());
  return pieces;
}

Pieces split_at(Heap& heap, std::string_view text, std::string_view separator, std::int64_t limit) {
  Pieces pieces;
  for (;;) {
    heap.step();
    const std::size_t at = limit-- == 0 ? std::string_view::npos : find_text(text, separator, 0);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + separator.size());
  }
}

// Backwards is forwards over reversed texts, in linear time.
std::string reversed(std::string_view text) { return std::string(text.rbegin(), text.rend()); }

Pieces split_at_from_right(Heap& heap, std::string_view text, std::string_view separator,
                           std::int64_t limit) {
  const std::string backwards = reversed(text);
  Pieces pieces = split_at(heap, backwards, reversed(separator), limit);
  for (std::string_view& piece : pieces) {
    const auto offset = static_cast<std::size_t>(piece.data() - backwards.data());
    piece = text.substr(text.size() - offset - piece.size(), piece.size());
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

Value text_list(Heap& heap, const Pieces& pieces, ListKind kind = ListKind::kList) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    heap.step();
    heap.grow(sizeof(TextData));  // many small texts cost more than their bytes
    items.push_back(make_text(heap, std::string(piece)));
  }
  return make_list(heap, std::move(items), kind);
}

template <bool kFromRight>
Value split(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, kFromRight ? "rsplit" : "split", {"sep", "maxsplit"});
  const std::int64_t limit = parameters.integer_or(1, -1);
  heap.step(self.str().size() / 16);
  if (!parameters.has_value(0)) {
    return text_list(heap, kFromRight ? split_at_spaces_from_right(heap, self.str(), limit)
                                      : split_at_spaces(heap, self.str(), limit));
  }
  const std::string& separator = parameters.text(0);
  if (separator.empty()) fail("empty separator");
  return text_list(heap, kFromRight ? split_at_from_right(heap, self.str(), separator, limit)
                                    : split_at(heap, self.str(), separator, limit));
}

Value split_lines_method(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "splitlines", {"keepends"});
  heap.step(self.str().size() / 16);
  return text_list(heap, split_lines(heap, self.str(), parameters.flag_or(0, false)));
}

template <bool kFromRight>
Value partition(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, kFromRight ? "rpartition" : "partition", {"sep"});
  const std::string_view text = self.str();
  const std::string& separator = parameters.text(0);
  if (separator.empty()) fail("empty separator");
  const std::size_t at = kFromRight ? find_last_text(text, separator) : find_text(text, separator, 0);
  heap.step(text.size() / 64);
  if (at == std::string_view::npos) {
    return text_list(heap, kFromRight ? Pieces{"", "", text} : Pieces{text, "", ""}, ListKind::kTuple);
  }
  return text_list(heap, {text.substr(0, at), separator, text.substr(at + separator.size())},
                   ListKind::kTuple);
}

Value join(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "join", {"iterable"});
  Output out(heap);
  std::size_t position = 0;
  for (const Value& item : collect(heap, parameters.at(0))) {
    if (!item.is_text()) {
      fail("sequence item " + std::to_string(position) + ": expected str instance, " + type_name(item) +
           " found");
    }
    if (position++ > 0) out.append(self.str());
    out.append(item.str());
  }
  return make_text(heap, out.take());
}

}  // namespace

MethodFunction find_split_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> table = {
      {"split", split<false>},         {"rsplit", split<true>},         {"splitlines", split_lines_method},
      {"partition", partition<false>}, {"rpartition", partition<true>}, {"join", join},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

std::size_t find_last_text(std::string_view text, std::string_view wanted) {
  const std::size_t at = find_text(reversed(text), reversed(wanted), 0);
  return at == std::string_view::npos ? at : text.size() - at - wanted.size();
}

std::string replace_text(Heap& heap, std::string_view text, std::string_view old, std::string_view fresh,
                         std::int64_t count) {
  heap.step(text.size() / 64);
  std::string out;
  const auto unlimited = std::numeric_limits<std::int64_t>::max();
  std::int64_t left = count < 0 ? unlimited : count;
  std::size_t at = 0;
  if (old.empty()) {
    for (; left > 0; --left) {
      heap.check_text(out.size() + fresh.size());
      out += fresh;
      if (at >= text.size()) break;
      const std::size_t size = utf8_length(text[at]);
      out.append(text.substr(at, size));
      at += size;
    }
    return out.append(text.substr(std::min(at, text.size())));
  }
  for (; left > 0; --left) {
    const std::size_t found = find_text(text, old, at);
    if (found == std::string_view::npos) break;
    heap.check_text(out.size() + (found - at) + fresh.size());
    out.append(text.substr(at, found - at));
    out += fresh;
    at = found + old.size();
  }
  return out.append(text.substr(at));
}

std::vector<std::string_view> split_lines(Heap& heap, std::string_view text, bool keep_ends) {
  Pieces lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_end(c)) continue;
    heap.step();
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string centered(Heap& heap, const std::string& text, const FormatSpec& spec) {
  const auto chars = static_cast<std::int64_t>(count_chars(text));
  if (spec.width <= chars) return text;
  const std::int64_t missing = spec.width - chars;
  // Python's rule: the odd space goes left where the width is odd, right otherwise.
  FormatSpec left = spec;
  left.align = '>';
  left.width = chars + missing / 2 + (missing & spec.width & 1);
  FormatSpec right = spec;
  right.align = '<';
  return pad(heap, pad(heap, text, left, '>'), right, '<');
}

bool has_only_case(std::string_view text, CharClass wanted) {
  bool found = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (in_class(c, wanted)) {
      found = true;
    } else if (in_class(c, CharClass::kCased)) {
      return false;
    }
  }
  return found;
}

}  // namespace shoal::tokenizer::jinja
