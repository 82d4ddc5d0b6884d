// str.format: replacement fields, their attributes, conversions and format specs.

#include <algorithm>
#include <string>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > 1'000'000'000) fail("too many decimal digits in format string");
  }
  return value;
}

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  const auto here = [&] { return at < text.size() ? text[at] : '\0'; };
  const std::size_t first = text.empty() ? 0 : std::min(utf8_length(text[0]), text.size());
  if (first < text.size() && is_align(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(here())) {
    spec.align = text[at++];
  }
  if (here() == '+' || here() == '-' || here() == ' ') spec.sign = text[at++];
  if (here() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (here() == '0') {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    ++at;
  }
  spec.width = read_number(text, at);
  if (here() == ',' || here() == '_') spec.grouping = text[at++];
  if (here() == '.') {
    ++at;
    if (!is_digit(here())) fail("format specifier missing precision");
    spec.precision = read_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("invalid format specifier " + repr_text(text));
  return spec;
}

std::string format_value(Heap& heap, const Value& value, std::string_view text) {
  if (text.empty()) return str_of(heap, value);
  require_defined(value);
  FormatSpec spec = parse_spec(text);
  const auto unknown = [&] {
    fail(std::string("unknown format code '") + spec.type + "' for object of type '" + type_name(value) +
         "'");
  };
  if (value.is_text()) {
    if (spec.type != '\0' && spec.type != 's') unknown();
    std::string out = value.str();
    if (spec.precision >= 0) out.resize(char_offset(out, static_cast<std::size_t>(spec.precision)));
    return pad(heap, std::move(out), spec, '<');
  }
  if (!value.is_number())
    fail(std::string("unsupported format string passed to ") + type_name(value) + ".__format__");
  const std::string_view known = value.is_integral() ? "dboxXneEfFgG%" : "eEfFgGn%";
  if (spec.type != '\0' && known.find(spec.type) == std::string_view::npos) unknown();
  return pad(heap, format_number(value, spec), spec, '>');
}

class BraceFormatter {
 public:
  BraceFormatter(Heap& heap, const Arguments& arguments) : heap_(heap), arguments_(arguments) {}

  // depth: a spec may hold fields of its own, and those no more.
  std::string run(std::string_view format, int depth) {
    if (depth > 1) fail("max string recursion exceeded");
    std::string out;
    for (std::size_t at = 0; at < format.size();) {
      heap_.step();
      heap_.check_text(out.size());
      const char c = format[at];
      const bool doubled = at + 1 < format.size() && format[at + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out.push_back(c);
        at += 2;
      } else if (c == '{') {
        const std::size_t end = field_end(format, at);
        out += field(format.substr(at + 1, end - at - 1), depth);
        at = end + 1;
      } else if (c == '}') {
        fail("single '}' encountered in format string");
      } else {
        const std::size_t next = std::min(format.find_first_of("{}", at), format.size());
        out.append(format.substr(at, next - at));
        at = next;
      }
    }
    return out;
  }

 private:
  static std::size_t field_end(std::string_view format, std::size_t at) {
    int depth = 0;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++depth;
      if (format[at] == '}' && --depth == 0) return at;
    }
    fail("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    const std::size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = look_up(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2) fail("end of string while looking for conversion specifier");
      if (rest[1] == 'r' || rest[1] == 'a') {
        value = make_text(heap_, repr_of(heap_, value));
      } else if (rest[1] == 's') {
        value = make_text(heap_, str_of(heap_, value));
      } else {
        fail("unknown conversion specifier " + repr_text(rest.substr(1, 1)));
      }
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    const std::string spec = rest.empty() ? std::string() : run(rest.substr(1), depth + 1);
    return format_value(heap_, value, spec);
  }

  Value look_up(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    for (std::size_t at = end; at < path.size();) {
      if (path[at] == '.') {
        const std::size_t stop = std::min(path.find_first_of(".[", at + 1), path.size());
        value = get_attribute(heap_, value, heap_.text(std::string(path.substr(at + 1, stop - at - 1))));
        at = stop;
      } else if (path[at] == '[') {
        const std::size_t stop = path.find(']', at);
        if (stop == std::string_view::npos) fail("missing ']' in format string");
        value = get_item(heap_, value, key_of(path.substr(at + 1, stop - at - 1)));
        at = stop + 1;
      } else {
        fail("only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value key_of(std::string_view text) {
    if (text.empty()) fail("empty attribute in format string");
    std::size_t at = 0;
    if (is_digit(text[0])) {
      const std::int64_t index = read_number(text, at);
      if (at == text.size()) return Value::integer(index);
    }
    return make_text(heap_, std::string(text));
  }

  Value argument(std::string_view name) {
    std::size_t at = 0;
    if (name.empty() || is_digit(name[0])) {
      const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(read_number(name, at));
      if (index >= arguments_.positional.size()) {
        fail("replacement index " + std::to_string(index) + " out of range for positional args tuple");
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key->bytes == name) return value;
    }
    fail("no argument " + repr_text(name) + " for the format");
  }

  Heap& heap_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

std::string format_braces(Heap& heap, std::string_view format, const Arguments& arguments) {
  return BraceFormatter(heap, arguments).run(format, 0);
}

}  // namespace shoal::tokenizer::jinja
