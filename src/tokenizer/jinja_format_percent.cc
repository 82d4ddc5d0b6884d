// The % operator of texts.

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

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, std::string_view format, const Value& values)
      : heap_(heap), format_(format), values_(values) {
    const List* list = values.list();
    if (list != nullptr && list->kind == ListKind::kTuple) tuple_ = list;
  }

  std::string run() {
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.append(format_.substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) convert();
      heap_.check_text(out_.size());
    }
    const bool all_used =
        tuple_ != nullptr ? next_ >= tuple_->items.size() : next_ > 0 || values_.dict() != nullptr;
    if (!all_used && values_.list() == nullptr) fail("not all arguments converted during string formatting");
    if (!all_used && tuple_ != nullptr) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) fail("incomplete format");
    return format_[at_];
  }

  Value next_value() {
    if (tuple_ == nullptr) {
      if (next_++ > 0) fail("not enough arguments for format string");
      return values_;
    }
    if (next_ >= tuple_->items.size()) fail("not enough arguments for format string");
    return tuple_->items[next_++];
  }

  Value named_value() {
    const std::size_t end = format_.find(')', at_);
    if (end == std::string_view::npos) fail("incomplete format key");
    Dict* dict = values_.dict();
    if (dict == nullptr) fail("format requires a mapping");
    const std::string_view name = format_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const Value* found = dict->find(heap_, name);
    if (found == nullptr) fail("no key " + repr_text(name) + " for the format");
    return *found;
  }

  std::int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_value();
      if (!value.is_integral()) fail("* wants int");
      return value.integral();
    }
    std::int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (peek() - '0');
      if (value > 1'000'000'000) fail("width too big");
      ++at_;
    }
    return value;
  }

  void read_flags(FormatSpec& spec) {
    for (;; ++at_) {
      switch (peek()) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          spec.sign = spec.sign == '+' ? '+' : ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          if (spec.align == '\0') spec.align = '=';
          break;
        default:
          return;
      }
    }
  }

  void convert() {
    ++at_;
    FormatSpec spec;
    Value value;
    bool named = false;
    if (peek() == '(') {
      value = named_value();
      named = true;
    }
    read_flags(spec);
    spec.width = number();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -std::max<std::int64_t>(spec.width, -1'000'000'000);
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<std::int64_t>(number(), 0);
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    if (spec.type == '%') {
      out_.push_back('%');
      return;
    }
    if (!named) value = next_value();
    out_ += conversion(value, spec);
  }

  std::string conversion(const Value& value, FormatSpec& spec) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
      case 'c':
        return text_conversion(value, spec);
      case 'i':
      case 'u':
        spec.type = 'd';
        break;
      case 'd':
      case 'o':
      case 'x':
      case 'X':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        break;
      default:
        fail(std::string("unsupported format character '") + spec.type + "'");
    }
    require_defined(value);
    if (!value.is_number()) {
      fail(std::string("%") + spec.type + " format: a real number is required, not " + type_name(value));
    }
    if (spec.align == '=') spec.fill = "0";
    const bool whole = spec.type == 'd' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X';
    if (!whole) return pad(heap_, format_number(value, spec), spec, '>');
    const double real = value.real_number();
    if (!value.is_integral() && !(real > -9.2e18 && real < 9.2e18))
      fail("the number does not fit an integer");
    return pad(
        heap_,
        format_number(Value::integer(value.is_integral() ? value.integral() : std::int64_t(real)), spec),
        spec, '>');
  }

  std::string text_conversion(const Value& value, FormatSpec& spec) {
    if (spec.align == '=') spec.align = '\0';
    std::string text;
    if (spec.type == 's') {
      text = str_of(heap_, value);
    } else if (spec.type != 'c') {
      text = repr_of(heap_, value);
    } else if (value.is_text() && length(value) == 1) {
      text = value.str();
    } else if (value.is_integral() && value.integral() >= 0 && value.integral() < 0xD800) {
      append_utf8(static_cast<char32_t>(value.integral()), text);
    } else {
      fail("%c requires int or char");
    }
    if (spec.precision >= 0) {
      text.resize(char_offset(text, static_cast<std::size_t>(spec.precision)));
    }
    return pad(heap_, std::move(text), spec, '>');
  }

  Heap& heap_;
  std::string_view format_;
  const Value& values_;
  const List* tuple_ = nullptr;
  std::size_t next_ = 0;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string format_percent(Heap& heap, std::string_view format, const Value& values) {
  return PercentFormatter(heap, format, values).run();
}

}  // namespace shoal::tokenizer::jinja
