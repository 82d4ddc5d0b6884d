// The parser's place in the tokens, and what both halves of the parser share.
//
// Thread-safety: none; one parse.
// Ownership: holds the tokens, and the names it has numbered.

#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_lexer.h"

namespace shoal::tokenizer::jinja {

// Expressions, operands and statements inside each other; a pair of parentheses takes two.
inline constexpr int kMaxParseDepth = 200;
// Height of an expression: a + b + c + ... grows one a term.
inline constexpr int kMaxHeight = 300;

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  // The current token, and moves on; never past the end.
  Token take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool at_operator(std::string_view op) const { return is(current(), TokenType::kOperator, op); }
  bool at_name(std::string_view name) const { return is(current(), TokenType::kName, name); }
  static bool is(const Token& token, TokenType type, std::string_view text) {
    return token.type == type && token.text == text;
  }
  bool skip_operator(std::string_view op) { return at_operator(op) && (take(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (take(), true); }
  void expect_operator(std::string_view op) {
    if (!skip_operator(op)) fail_expected("'" + std::string(op) + "'");
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expected("'" + std::string(name) + "'");
  }
  std::string take_any_name() {
    if (current().type != TokenType::kName) fail_expected("a name");
    return take().text;
  }
  void expect(TokenType type, const char* description) {
    if (current().type != type) fail_expected(description);
    take();
  }

  [[noreturn]] void fail_expected(const std::string& what) const {
    fail_at(line(), "expected " + what + ", got " + describe(current()));
  }
  [[noreturn]] static void fail_at(int line, const std::string& message) {
    fail("line " + std::to_string(line) + ": " + message);
  }
  static std::string describe(const Token& token) {
    switch (token.type) {
      case TokenType::kEnd:
        return "the end of the template";
      case TokenType::kData:
        return "template text";
      case TokenType::kBlockBegin:
        return "'{%'";
      case TokenType::kBlockEnd:
        return "'%}'";
      case TokenType::kVariableBegin:
        return "'{{'";
      case TokenType::kVariableEnd:
        return "'}}'";
      case TokenType::kText:
        return "a string";
      default:
        return "'" + token.text + "'";
    }
  }

  NameId name_id(const std::string& name) {
    const auto [it, fresh] = ids_.try_emplace(name, static_cast<NameId>(names_.size()));
    if (fresh) {
      names_.push_back(constant_text(name));
      uses_.push_back(0);
    }
    return it->second;
  }
  // How often a variable was read so far.
  int uses(NameId id) const { return uses_[id]; }
  void count_use(NameId id) { ++uses_[id]; }
  std::vector<Text> take_names() { return std::move(names_); }

  // One level of recursion of the parser, for as long as it lives.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (stream_.depth_ >= kMaxParseDepth) {
        fail_at(stream_.line(), "nested more than " + std::to_string(kMaxParseDepth) + " deep");
      }
      ++stream_.depth_;
    }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<Text> names_;
  std::vector<int> uses_;  // by NameId
  std::unordered_map<std::string, NameId> ids_;
};

}  // namespace shoal::tokenizer::jinja
