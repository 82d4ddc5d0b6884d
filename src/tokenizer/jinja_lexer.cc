#include "tokenizer/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_literal.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Letters beyond ASCII may stand in names.
bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_data();
    emit(TokenType::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& message) const {
    fail("line " + std::to_string(line_) + ": " + message);
  }

  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    line_start_ = to > 0 && source_[to - 1] == '\n';
    at_ = to;
  }

  std::size_t after_space(std::size_t at) const {
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_space(next_code_point(source_, next))) break;
      at = next;
    }
    return at;
  }

  void emit(TokenType type, std::string text) { tokens_.push_back({type, line_, std::move(text), 0, 0}); }

  // Text before a tag, as the tag's sign and lstrip_blocks leave it. line_start: the text begins a line.
  void emit_data(std::string_view text, char sign, bool strip_indent, bool line_start) {
    if (sign == '-') {
      text = strip_space(text, Sides::kRight);
    } else if (sign != '+' && strip_indent) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t from = newline == std::string_view::npos ? 0 : newline + 1;
      const bool only_space = strip_space(text.substr(from), Sides::kRight).empty();
      if ((from > 0 || line_start) && only_space) text = text.substr(0, from);
    }
    if (!text.empty()) emit(TokenType::kData, std::string(text));
  }

  std::size_t find_tag(std::size_t from) const {
    for (std::size_t at = from; (at = source_.find('{', at)) != std::string_view::npos; ++at) {
      if (at + 1 >= source_.size()) break;
      const char kind = source_[at + 1];
      if (kind == '%' || kind == '#' || kind == '{') return at;
    }
    return std::string_view::npos;
  }

  // The sign after an opening delimiter that ends at `at`: '-', '+' or none, and moves behind it.
  char take_sign(std::size_t& at) const {
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) return source_[at++];
    return '\0';
  }

  // Data up to the next tag, and the tag.
  void lex_data() {
    const std::size_t tag = find_tag(at_);
    if (tag == std::string_view::npos) {
      emit(TokenType::kData, std::string(source_.substr(at_)));
      advance(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    std::size_t inside = tag + 2;
    const char sign = take_sign(inside);
    emit_data(source_.substr(at_, tag - at_), sign, kind != '{', line_start_);
    if (kind == '#') {
      advance(inside);
      skip_comment();
      return;
    }
    if (kind == '%') {
      if (const std::size_t raw = raw_begin_end(inside); raw != std::string_view::npos) {
        advance(raw);
        lex_raw();
        return;
      }
    }
    advance(tag);
    emit(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, {});
    advance(inside);
    lex_tag(kind == '%');
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail_here("Missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(tag_end(end + 2, sign, true));
  }

  // Where the text goes on after a closing delimiter that ends at `at`.
  std::size_t tag_end(std::size_t at, char sign, bool trim) const {
    if (sign == '-') return after_space(at);
    if (trim && sign != '+' && at < source_.size() && source_[at] == '\n') return at + 1;
    return at;
  }

  // End of "raw %}" at `at`, npos where this is another block.
  std::size_t raw_begin_end(std::size_t at) const {
    at = after_space(at);
    if (!source_.substr(at).starts_with("raw")) return std::string_view::npos;
    at = after_space(at + 3);
    if (source_.substr(at).starts_with("-%}")) return after_space(at + 3);
    return source_.substr(at).starts_with("%}") ? at + 2 : std::string_view::npos;
  }

  void lex_raw() {
    const std::size_t from = at_;
    for (std::size_t tag = from; (tag = source_.find("{%", tag)) != std::string_view::npos; ++tag) {
      std::size_t at = tag + 2;
      const char sign = take_sign(at);
      at = after_space(at);
      if (!source_.substr(at).starts_with("endraw")) continue;
      at = after_space(at + 6);
      char end_sign = '\0';
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) end_sign = source_[at++];
      if (!source_.substr(at).starts_with("%}")) continue;
      emit_data(source_.substr(from, tag - from), sign, true, line_start_);
      advance(tag_end(at + 2, end_sign, true));
      return;
    }
    fail_here("Missing end of raw directive");
  }

  // The tokens of one tag, up to and with its end.
  void lex_tag(bool block) {
    std::string brackets;  // closing ones still due
    for (;;) {
      advance(after_space(at_));
      if (at_ >= source_.size()) return;  // the parser says what is missing
      if (brackets.empty() && lex_tag_end(block)) return;
      const char c = source_[at_];
      if (is_digit(c)) {
        lex_number();
      } else if (is_name_char(c)) {
        std::size_t end = at_;
        while (end < source_.size() && is_name_char(source_[end])) ++end;
        emit(TokenType::kName, std::string(source_.substr(at_, end - at_)));
        advance(end);
      } else if (c == '\'' || c == '"') {
        lex_text(c);
      } else {
        lex_operator(brackets);
      }
    }
  }

  bool lex_tag_end(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    char sign = '\0';
    std::size_t at = at_;
    if (source_[at] == '-' || (block && source_[at] == '+')) sign = source_[at++];
    if (!source_.substr(at).starts_with(end)) return false;
    emit(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, {});
    advance(tag_end(at + 2, sign, block));
    return true;
  }

  void lex_number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const NumberLiteral number = read_number(source_.substr(at_), !after_dot);
    if (!number.fits) fail_here("number is beyond 64 bits");
    emit(number.real ? TokenType::kReal : TokenType::kInteger, std::string(source_.substr(at_, number.size)));
    tokens_.back().integer = number.integer_value;
    tokens_.back().real = number.real_value;
    advance(at_ + number.size);
  }

  void lex_text(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here(std::string("unexpected char ") + quote + " that no other closes");
    std::string text;
    if (!unescape(source_.substr(at_ + 1, end - at_ - 1), text)) fail_here("broken escape in a string");
    emit(TokenType::kText, std::move(text));
    advance(end + 1);
  }

  void lex_operator(std::string& brackets) {
    static constexpr std::array<std::string_view, 6> kDouble = {"//", "**", "==", "!=", ">=", "<="};
    std::string_view op;
    for (const std::string_view candidate : kDouble) {
      if (looking_at(candidate)) op = candidate;
    }
    if (op.empty()) op = source_.substr(at_, 1);
    if (op.size() == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(op[0]) == std::string_view::npos) {
      fail_here("unexpected char '" + std::string(op) + "'");
    }
    switch (op[0]) {
      case '(':
        brackets.push_back(')');
        break;
      case '[':
        brackets.push_back(']');
        break;
      case '{':
        brackets.push_back('}');
        break;
      case ')':
      case ']':
      case '}':
        if (brackets.empty()) fail_here("unexpected '" + std::string(op) + "'");
        if (brackets.back() != op[0]) {
          fail_here("unexpected '" + std::string(op) + "', expected '" + brackets.back() + "'");
        }
        brackets.pop_back();
        break;
      default:
        break;
    }
    emit(TokenType::kOperator, std::string(op));
    advance(at_ + op.size());
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // the character before at_ is a newline, or there is none
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string normalized = normalize(source);
  return Lexer(normalized).run();
}

}  // namespace shoal::tokenizer::jinja
