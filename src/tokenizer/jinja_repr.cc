#include "tokenizer/jinja_repr.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

// Builds a repr piece by piece and stops at the Heap's limit for one text.
class ReprWriter {
 public:
  explicit ReprWriter(Heap& heap) : heap_(heap) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxNesting) fail("a value is nested too deep to be printed");
    heap_.step();
    heap_.check_text(out_.size());
    if (value.is_undefined()) {
      out_ += "Undefined";
    } else if (value.is_none()) {
      out_ += "None";
    } else if (const bool* flag = value.as<bool>()) {
      out_ += *flag ? "True" : "False";
    } else if (const std::int64_t* number = value.as<std::int64_t>()) {
      out_ += std::to_string(*number);
    } else if (const double* real = value.as<double>()) {
      out_ += repr_real(*real);
    } else if (value.is_text()) {
      heap_.step(value.str().size() / (value.text()->ascii ? 64 : 4));  // a look at every character
      out_ += value.text()->markup ? "Markup(" + repr_text(value.str()) + ")" : repr_text(value.str());
    } else if (Dict* dict = value.dict()) {
      write_dict(*dict, depth);
    } else if (Namespace* space = value.space()) {
      out_ += "<Namespace ";
      write_dict(*space->fields, depth);
      out_ += ">";
    } else if (List* list = value.list()) {
      write_list(*list, depth);
    } else {
      out_ += value.callable()->describe();
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void write_dict(const Dict& dict, int depth) {
    out_ += "{";
    const char* separator = "";
    for (const Dict::Entry& entry : dict.entries) {
      out_ += separator;
      write(entry.key, depth + 1);
      out_ += ": ";
      write(entry.value, depth + 1);
      separator = ", ";
    }
    out_ += "}";
  }

  void write_items(const List& list, int depth) {
    const char* separator = "";
    for (const Value& item : list.items) {
      out_ += separator;
      write(item, depth + 1);
      separator = ", ";
    }
  }

  void write_range(const List& range) {
    const std::vector<Value>& items = range.items;
    const std::int64_t first = items.empty() ? 0 : items.front().integral();
    const std::int64_t step = items.size() < 2 ? 1 : items[1].integral() - first;
    const std::int64_t stop = items.empty() ? 0 : items.back().integral() + (step > 0 ? 1 : -1);
    out_ += "range(" + std::to_string(first) + ", " + std::to_string(stop);
    if (step != 1) out_ += ", " + std::to_string(step);
    out_ += ")";
  }

  void write_list(const List& list, int depth) {
    switch (list.kind) {
      case ListKind::kGenerator:
        out_ += "<generator object>";
        return;
      case ListKind::kRange:
        write_range(list);
        return;
      case ListKind::kTuple:
      case ListKind::kGroup:
        out_ += "(";
        write_items(list, depth);
        out_ += list.items.size() == 1 ? ",)" : ")";
        return;
      case ListKind::kList:
        out_ += "[";
        write_items(list, depth);
        out_ += "]";
        return;
      case ListKind::kKeys:
      case ListKind::kValues:
      case ListKind::kItems:
        out_ += std::string(type_name(const_cast<List*>(&list))) + "([";
        write_items(list, depth);
        out_ += "])";
        return;
    }
  }

  Heap& heap_;
  std::string out_;
};

void append_hex(char32_t c, std::string& out) {
  std::array<char, 12> buffer{};
  const char* format = c <= 0xFF ? "\\x%02x" : c <= 0xFFFF ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(c));
  out += buffer.data();
}

}  // namespace

std::string repr_of(Heap& heap, const Value& value) {
  ReprWriter writer(heap);
  writer.write(value, 0);
  return writer.take();
}

std::string repr_text(std::string_view text) {
  const char quote =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  out.reserve(text.size() + 2);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (in_class(c, CharClass::kUnprintable)) {
      append_hex(c, out);
    } else {
      out.append(text.substr(start, at - start));
    }
  }
  out.push_back(quote);
  return out;
}

std::string repr_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view digits(buffer.data(), static_cast<std::size_t>(result.ptr - buffer.data()));
  const std::size_t e = digits.find('e');
  int exponent = 0;
  const char* from = digits.data() + e + 1 + (digits[e + 1] == '+' ? 1 : 0);
  std::from_chars(from, digits.data() + digits.size(), exponent);
  // Python's rule: positional from 1e-4 up to, but not including, 1e16.
  if (exponent < -4 || exponent >= 16) return std::string(digits);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string out(buffer.data(), fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

void append_str(Heap& heap, const Value& value, Output& out) {
  if (value.is_text()) {
    out.append(value.str());
  } else if (!value.is_undefined()) {
    out.append(repr_of(heap, value));
  }
}

std::string str_of(Heap& heap, const Value& value) {
  if (value.is_text()) {
    heap.step(value.str().size() / 256);
    return value.str();
  }
  return value.is_undefined() ? std::string() : repr_of(heap, value);
}

Text text_of(Heap& heap, const Value& value) {
  return value.is_text() ? value.text() : heap.text(str_of(heap, value));
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace shoal::tokenizer::jinja
