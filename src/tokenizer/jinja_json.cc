#include "tokenizer/jinja_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value convert(Heap& heap, const Json& json, int depth) {
  if (depth > kMaxNesting) fail("the request is nested more than " + std::to_string(kMaxNesting) + " deep");
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      const bool fits = number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      return fits ? Value::integer(static_cast<std::int64_t>(number))
                  : Value::real(static_cast<double>(number));
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return make_text(heap, to_valid_utf8(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& element : json) items.push_back(convert(heap, element, depth + 1));
      return make_list(heap, std::move(items));
    }
    case Json::value_t::object: {
      Dict* dict = heap.make<Dict>();
      dict->entries.reserve(json.size());
      for (const auto& [key, element] : json.items()) {
        dict->set(heap, make_text(heap, to_valid_utf8(key)), convert(heap, element, depth + 1));
      }
      return dict;
    }
    default:
      return None{};
  }
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxNesting) fail("a value is nested too deep for JSON");
    heap_.step();
    heap_.check_text(out_.size());
    if (value.is_none()) {
      out_ += "null";
    } else if (const bool* flag = value.as<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (const std::int64_t* number = value.as<std::int64_t>()) {
      out_ += std::to_string(*number);
    } else if (const double* real = value.as<double>()) {
      out_ += real_text(*real);
    } else if (value.is_text()) {
      write_text(value.str());
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, depth);
    } else if (const List* list = value.list(); list != nullptr && is_array(*list)) {
      write_list(*list, depth);
    } else {
      fail(std::string("Object of type ") + type_name(value) + " is not JSON serializable");
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static bool is_array(const List& list) {
    return list.kind == ListKind::kList || list.kind == ListKind::kTuple || list.kind == ListKind::kGroup;
  }

  static std::string real_text(double real) {
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return repr_real(real);
  }

  void new_line(int depth) {
    if (!style_.indented) return;
    out_.push_back('\n');
    heap_.check_text(out_.size() + style_.indent.size() * static_cast<std::size_t>(depth));
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
  }

  void write_list(const List& list, int depth) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    bool first = true;
    for (const Value& item : list.items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(depth + 1);
      write(item, depth + 1);
    }
    new_line(depth);
    out_.push_back(']');
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const Dict::Entry* a, const Dict::Entry* b) {
        return less(heap_, a->key, b->key);
      });
    }
    out_.push_back('{');
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(depth + 1);
      write_text(key_text(entry->key));
      out_ += style_.key_separator;
      write(entry->value, depth + 1);
    }
    new_line(depth);
    out_.push_back('}');
  }

  std::string key_text(const Value& key) {
    if (key.is_text()) return key.str();
    if (key.is_none()) return "null";
    if (const bool* flag = key.as<bool>()) return *flag ? "true" : "false";
    if (key.is_integral()) return std::to_string(key.integral());
    if (const double* real = key.as<double>()) return real_text(*real);
    fail(std::string("keys must be str, int, float, bool or None, not ") + type_name(key));
  }

  void write_escape(unsigned unit) {
    std::array<char, 16> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "\\u%04x", unit);
    out_ += buffer.data();
  }

  void write_non_ascii(char32_t c) {
    if (c > 0xFFFF) {
      write_escape(0xD800 + ((c - 0x10000) >> 10));
      write_escape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      write_escape(c);
    }
  }

  void write_text(std::string_view text) {
    heap_.step(text.size() / 64);
    heap_.check_text(out_.size() + text.size());
    out_.push_back('"');
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t plain = at;
      while (at < text.size() && is_plain(text[at])) ++at;
      out_.append(text.substr(plain, at - plain));
      if (at < text.size()) write_special(text, at);
    }
    out_.push_back('"');
  }

  bool is_plain(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && c != '"' && c != '\\' && (byte < 0x80 || !style_.ascii_only);
  }

  void write_special(std::string_view text, std::size_t& at) {
    const char32_t c = next_code_point(text, at);
    switch (c) {
      case '"':
        out_ += "\\\"";
        break;
      case '\\':
        out_ += "\\\\";
        break;
      case '\n':
        out_ += "\\n";
        break;
      case '\r':
        out_ += "\\r";
        break;
      case '\t':
        out_ += "\\t";
        break;
      case '\f':
        out_ += "\\f";
        break;
      case '\b':
        out_ += "\\b";
        break;
      default:
        write_non_ascii(c);
    }
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Value from_json(Heap& heap, const Json& json) { return convert(heap, json, 0); }

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace shoal::tokenizer::jinja
