#include "tokenizer/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include "tokenizer/jinja_expression_parser.h"
#include "tokenizer/jinja_token_stream.h"

namespace shoal::tokenizer::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : stream_(tokenize(source)), expressions_(stream_) {}

  Template run() {
    Template result;
    result.body = body({});
    result.names = stream_.take_names();
    return result;
  }

 private:
  // Statements up to a tag that begins with one of `ends`, whose word is the current token afterwards; up to
  // the end of the source where there are none.
  Body body(Words ends) {
    const TokenStream::Level level(stream_);
    Body statements;
    for (;;) {
      switch (stream_.current().type) {
        case TokenType::kData: {
          const int line = stream_.line();
          statements.push_back(std::make_unique<TextStatement>(stream_.take().text, line));
          break;
        }
        case TokenType::kVariableBegin: {
          stream_.take();
          auto print = std::make_unique<PrintStatement>(stream_.line());
          print->value = expressions_.tuple();
          stream_.expect(TokenType::kVariableEnd, "'}}'");
          statements.push_back(std::move(print));
          break;
        }
        case TokenType::kBlockBegin:
          stream_.take();
          for (const std::string_view end : ends) {
            if (stream_.at_name(end)) return statements;
          }
          statement(statements, ends);
          stream_.expect(TokenType::kBlockEnd, "'%}'");
          break;
        default:
          if (ends.size() > 0) stream_.fail_expected("a tag '" + std::string(*std::prev(ends.end())) + "'");
          return statements;
      }
    }
  }

  // The rest of the opening tag's end, a body, and the closing tag's word.
  Body block(Words ends) {
    stream_.skip_operator(":");
    stream_.expect(TokenType::kBlockEnd, "'%}'");
    return body(ends);
  }
  Body closed_block(std::string_view end) {
    Body result = block({end});
    stream_.take();
    return result;
  }

  void statement(Body& out, Words ends) {
    const int line = stream_.line();
    const std::string word = stream_.take_any_name();
    if (word == "if") return out.push_back(if_statement(line));
    if (word == "for") return out.push_back(for_statement(line));
    if (word == "set") return out.push_back(set_statement(line));
    if (word == "macro") return out.push_back(macro_statement(line));
    if (word == "call") return out.push_back(call_statement(line));
    if (word == "filter") return out.push_back(filter_statement(line));
    if (word == "with") return out.push_back(with_statement(line));
    if (word == "block") return out.push_back(block_statement(line));
    if (word == "print") return print_statement(out, line);
    if (word == "break" || word == "continue") return out.push_back(loop_control(word, line));
    if (word == "generation") {
      // Marks what an assistant said, for training; here its content alone counts.
      for (StatementPtr& inner : closed_block("endgeneration")) out.push_back(std::move(inner));
      return;
    }
    if (word == "extends" || word == "include" || word == "import" || word == "from") {
      TokenStream::fail_at(line, "'" + word + "' needs another template, and a chat template stands alone");
    }
    std::string message = "unknown tag '" + word + "'";
    if (ends.size() > 0)
      message += ", the block that is open ends with '" + std::string(*std::prev(ends.end())) + "'";
    TokenStream::fail_at(line, message);
  }

  StatementPtr if_statement(int line) {
    auto node = std::make_unique<IfStatement>(line);
    for (;;) {
      ExprPtr condition = expressions_.tuple(false);
      Body then = block({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(condition), std::move(then));
      const std::string word = stream_.take().text;
      if (word == "elif") continue;
      if (word == "else") node->otherwise = closed_block("endif");
      return node;
    }
  }

  StatementPtr for_statement(int line) {
    auto node = std::make_unique<ForStatement>(line);
    node->target = expressions_.target(false);
    check_not_loop(node->target);
    stream_.expect_name("in");
    node->iterable = expressions_.tuple(false, true);
    const int captures = captures_;
    if (stream_.skip_name("if")) node->filter = expressions_.expression();
    node->recursive = stream_.skip_name("recursive");
    if (node->recursive) ++captures_;
    ++loops_;
    node->body = block({"else", "endfor"});
    --loops_;
    if (stream_.take().text == "else") node->otherwise = closed_block("endfor");
    node->captured = captures_ != captures;
    return node;
  }

  void check_not_loop(const Target& target) {
    for (const Target& part : target.parts) check_not_loop(part);
    if (!target.is_tuple && target.name == stream_.name_id("loop")) {
      TokenStream::fail_at(target.line, "Can't assign to special loop variable in for-loop target");
    }
  }

  StatementPtr loop_control(const std::string& word, int line) {
    if (loops_ == 0) TokenStream::fail_at(line, "'" + word + "' outside loop");
    return std::make_unique<Statement>(word == "break" ? StatementKind::kBreak : StatementKind::kContinue,
                                       line);
  }

  StatementPtr set_statement(int line) {
    Target target = expressions_.target(true);
    if (stream_.skip_operator("=")) {
      auto node = std::make_unique<SetStatement>(line);
      node->target = std::move(target);
      node->value = expressions_.tuple();
      return node;
    }
    auto node = std::make_unique<SetBlockStatement>(line);
    const int captures = captures_;
    node->target = std::move(target);
    node->filter = expressions_.filters(nullptr, false);
    node->body = closed_block("endset");
    node->captured = captures_ != captures;
    return node;
  }

  void signature(MacroDefinition& macro) {
    stream_.expect_operator("(");
    while (!stream_.at_operator(")")) {
      const std::string name = stream_.take_any_name();
      macro.parameters.push_back(stream_.name_id(name));
      macro.parameter_names.push_back(constant_text(name));
      if (stream_.skip_operator("=")) {
        macro.defaults.push_back(expressions_.expression());
      } else if (!macro.defaults.empty()) {
        stream_.fail_expected("a default, as the argument before has one");
      }
      if (!stream_.skip_operator(",")) break;
    }
    stream_.expect_operator(")");
  }

  // The body, and which of the special names it mentions.
  void macro_body(MacroDefinition& macro, std::string_view end) {
    const int captures = ++captures_;
    const int loops = std::exchange(loops_, 0);
    const NameId special[] = {stream_.name_id("varargs"), stream_.name_id("kwargs"),
                              stream_.name_id("caller")};
    bool* const uses[] = {&macro.uses_varargs, &macro.uses_kwargs, &macro.uses_caller};
    int before[3];
    for (int i = 0; i < 3; ++i) before[i] = stream_.uses(special[i]);
    macro.body = closed_block(end);
    macro.captured = captures_ != captures;
    for (int i = 0; i < 3; ++i) {
      const bool parameter = std::count(macro.parameters.begin(), macro.parameters.end(), special[i]) > 0;
      *uses[i] = !parameter && stream_.uses(special[i]) > before[i];
    }
    loops_ = loops;
  }

  StatementPtr macro_statement(int line) {
    auto node = std::make_unique<MacroStatement>(line);
    const std::string name = stream_.take_any_name();
    node->name = stream_.name_id(name);
    node->definition.name = constant_text(name);
    signature(node->definition);
    macro_body(node->definition, "endmacro");
    return node;
  }

  StatementPtr call_statement(int line) {
    auto node = std::make_unique<CallBlockStatement>(line);
    node->caller.name = constant_text("caller");
    if (stream_.at_operator("(")) signature(node->caller);
    node->call = expressions_.expression();
    if (node->call->kind != ExprKind::kCall) TokenStream::fail_at(line, "expected call");
    macro_body(node->caller, "endcall");
    return node;
  }

  StatementPtr filter_statement(int line) {
    auto node = std::make_unique<FilterBlockStatement>(line);
    const int captures = captures_;
    node->filter = expressions_.filters(nullptr, true);
    node->body = closed_block("endfilter");
    node->captured = captures_ != captures;
    return node;
  }

  StatementPtr with_statement(int line) {
    auto node = std::make_unique<WithStatement>(line);
    const int captures = captures_;
    while (stream_.current().type != TokenType::kBlockEnd) {
      if (!node->bindings.empty()) stream_.expect_operator(",");
      Target target = expressions_.target(false);
      stream_.expect_operator("=");
      node->bindings.emplace_back(std::move(target), expressions_.expression());
    }
    node->body = closed_block("endwith");
    node->captured = captures_ != captures;
    return node;
  }

  StatementPtr block_statement(int line) {
    auto node = std::make_unique<ScopeStatement>(line);
    const int captures = captures_;
    const std::string name = stream_.take_any_name();
    stream_.skip_name("scoped");
    stream_.skip_name("required");
    const int loops = std::exchange(loops_, 0);
    node->body = closed_block("endblock");
    loops_ = loops;
    stream_.skip_name(name);
    node->captured = captures_ != captures;
    return node;
  }

  void print_statement(Body& out, int line) {
    for (bool more = true; more; more = stream_.skip_operator(",")) {
      auto print = std::make_unique<PrintStatement>(line);
      print->value = expressions_.expression();
      out.push_back(std::move(print));
    }
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0;     // loops the current statement is in
  int captures_ = 0;  // macros, call blocks and recursive loops seen so far
};

}  // namespace

Template parse_template(std::string_view source) { return StatementParser(source).run(); }

}  // namespace shoal::tokenizer::jinja
