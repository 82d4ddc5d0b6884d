// Jinja's expressions, with Jinja's precedence: if/else, or, and, not, comparison, + -, ~, * / // %, **,
// signs, then subscripts, calls, filters and tests.
//
// Thread-safety: none; one parse.
// Ownership: reads from a TokenStream that outlives it.

#pragma once

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_token_stream.h"

namespace shoal::tokenizer::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // One expression; conditional: with "a if b else c".
  ExprPtr expression(bool conditional = true);
  // One expression, or a tuple without parentheses. In `for x in a, b recursive` the tuple ends at the word.
  ExprPtr tuple(bool conditional = true, bool ends_at_recursive = false);
  // What an assignment may stand before; namespaces: with name.attribute. A name followed by `in` ends it.
  Target target(bool namespaces);
  // "| name(...) | ..." applied to operand; null where there is none. inline_start: the first name comes
  // without a bar.
  ExprPtr filters(ExprPtr operand, bool inline_start);

 private:
  ExprPtr conditional();
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr bracketed(ExprPtr node, int line);
  ExprPtr call(ExprPtr callee);
  ExprPtr test(ExprPtr operand);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr parenthesized();
  int arguments(CallArguments& out);
  std::string dotted_name();
  Target single_target(bool namespaces);
  ExprPtr binary(ExprKind kind, Operator op, ExprPtr left, ExprPtr right, int line);

  TokenStream& stream_;
};

}  // namespace shoal::tokenizer::jinja
