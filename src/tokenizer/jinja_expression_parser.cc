#include "tokenizer/jinja_expression_parser.h"

#include <algorithm>
#include <optional>
#include <string>

namespace shoal::tokenizer::jinja {
namespace {

// Puts a child under a node and keeps the height bounded: trees are walked recursively.
void adopt(Expr& parent, ExprPtr& slot, ExprPtr child) {
  parent.height = std::max(parent.height, child->height + 1);
  if (parent.height > kMaxHeight) {
    TokenStream::fail_at(parent.line,
                         "an expression has more than " + std::to_string(kMaxHeight) + " levels");
  }
  slot = std::move(child);
}

void append(SequenceExpr& parent, ExprPtr child) {
  adopt(parent, parent.items.emplace_back(), std::move(child));
}

std::optional<Comparison> comparison_of(const Token& token) {
  if (token.type != TokenType::kOperator) return std::nullopt;
  if (token.text == "==") return Comparison::kEqual;
  if (token.text == "!=") return Comparison::kNotEqual;
  if (token.text == "<") return Comparison::kLess;
  if (token.text == "<=") return Comparison::kLessEqual;
  if (token.text == ">") return Comparison::kGreater;
  if (token.text == ">=") return Comparison::kGreaterEqual;
  return std::nullopt;
}

// Whether an argument without parentheses may follow a test's name: `x is divisibleby 3`.
bool begins_operand(const Token& token) {
  switch (token.type) {
    case TokenType::kText:
    case TokenType::kInteger:
    case TokenType::kReal:
      return true;
    case TokenType::kName:
      return token.text != "else" && token.text != "or" && token.text != "and";
    case TokenType::kOperator:
      return token.text == "(" || token.text == "[" || token.text == "{";
    default:
      return false;
  }
}

bool is_reserved(const std::string& name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

}  // namespace

ExprPtr ExpressionParser::expression(bool with_condition) {
  const TokenStream::Level level(stream_);
  return with_condition ? conditional() : disjunction();
}

ExprPtr ExpressionParser::tuple(bool with_condition, bool ends_at_recursive) {
  const int line = stream_.line();
  const auto at_end = [&] {
    const TokenType type = stream_.current().type;
    return type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || stream_.at_operator(")") ||
           (ends_at_recursive && stream_.at_name("recursive"));
  };
  if (at_end()) stream_.fail_expected("an expression");
  ExprPtr first = expression(with_condition);
  if (!stream_.at_operator(",")) return first;
  auto node = std::make_unique<SequenceExpr>(ExprKind::kTuple, line);
  append(*node, std::move(first));
  while (stream_.skip_operator(",") && !at_end()) append(*node, expression(with_condition));
  return node;
}

Target ExpressionParser::single_target(bool namespaces) {
  const TokenStream::Level level(stream_);
  Target target;
  target.line = stream_.line();
  if (stream_.skip_operator("(")) {
    target = this->target(namespaces);
    stream_.expect_operator(")");
    return target;
  }
  const std::string name = stream_.take_any_name();
  if (is_reserved(name)) TokenStream::fail_at(target.line, "can't assign to '" + name + "'");
  target.name = stream_.name_id(name);
  if (namespaces && stream_.skip_operator(".")) target.attribute = constant_text(stream_.take_any_name());
  return target;
}

Target ExpressionParser::target(bool namespaces) {
  Target first = single_target(namespaces);
  if (!stream_.at_operator(",")) return first;
  Target tuple;
  tuple.line = first.line;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (stream_.skip_operator(",")) {
    if (stream_.at_operator("=") || stream_.at_name("in") || stream_.at_operator(")")) break;
    tuple.parts.push_back(single_target(namespaces));
  }
  return tuple;
}

ExprPtr ExpressionParser::conditional() {
  int line = stream_.line();
  ExprPtr node = disjunction();
  while (stream_.skip_name("if")) {
    auto choice = std::make_unique<ConditionalExpr>(line);
    adopt(*choice, choice->then, std::move(node));
    adopt(*choice, choice->condition, disjunction());
    if (stream_.skip_name("else")) {
      const TokenStream::Level level(stream_);
      adopt(*choice, choice->otherwise, conditional());
    }
    node = std::move(choice);
    line = stream_.line();
  }
  return node;
}

ExprPtr ExpressionParser::binary(ExprKind kind, Operator op, ExprPtr left, ExprPtr right, int line) {
  auto node = std::make_unique<BinaryExpr>(kind, line);
  node->op = op;
  adopt(*node, node->left, std::move(left));
  adopt(*node, node->right, std::move(right));
  return node;
}

ExprPtr ExpressionParser::disjunction() {
  const int line = stream_.line();
  ExprPtr left = conjunction();
  while (stream_.skip_name("or"))
    left = binary(ExprKind::kOr, Operator::kAdd, std::move(left), conjunction(), line);
  return left;
}

ExprPtr ExpressionParser::conjunction() {
  const int line = stream_.line();
  ExprPtr left = negation();
  while (stream_.skip_name("and"))
    left = binary(ExprKind::kAnd, Operator::kAdd, std::move(left), negation(), line);
  return left;
}

ExprPtr ExpressionParser::negation() {
  const int line = stream_.line();
  if (!stream_.skip_name("not")) return comparison();
  const TokenStream::Level level(stream_);
  auto node = std::make_unique<UnaryExpr>(ExprKind::kNot, line);
  adopt(*node, node->operand, negation());
  return node;
}

ExprPtr ExpressionParser::comparison() {
  const int line = stream_.line();
  ExprPtr first = sum();
  std::unique_ptr<CompareExpr> node;
  for (;;) {
    std::optional<Comparison> op = comparison_of(stream_.current());
    if (op) {
      stream_.take();
    } else if (stream_.skip_name("in")) {
      op = Comparison::kIn;
    } else if (stream_.at_name("not") && TokenStream::is(stream_.look(), TokenType::kName, "in")) {
      stream_.take();
      stream_.take();
      op = Comparison::kNotIn;
    } else {
      break;
    }
    if (node == nullptr) {
      node = std::make_unique<CompareExpr>(line);
      adopt(*node, node->first, std::move(first));
    }
    ExprPtr operand = sum();
    auto& slot = node->rest.emplace_back(*op, nullptr);
    adopt(*node, slot.second, std::move(operand));
  }
  if (node != nullptr) return node;
  return first;
}

ExprPtr ExpressionParser::sum() {
  const int line = stream_.line();
  ExprPtr left = concatenation();
  while (stream_.at_operator("+") || stream_.at_operator("-")) {
    const Operator op = stream_.take().text == "+" ? Operator::kAdd : Operator::kSub;
    left = binary(ExprKind::kArithmetic, op, std::move(left), concatenation(), line);
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  const int line = stream_.line();
  ExprPtr first = product();
  if (!stream_.at_operator("~")) return first;
  auto node = std::make_unique<SequenceExpr>(ExprKind::kConcat, line);
  append(*node, std::move(first));
  while (stream_.skip_operator("~")) append(*node, product());
  return node;
}

ExprPtr ExpressionParser::product() {
  const int line = stream_.line();
  ExprPtr left = power();
  for (;;) {
    Operator op = Operator::kMul;
    if (stream_.at_operator("/")) {
      op = Operator::kDiv;
    } else if (stream_.at_operator("//")) {
      op = Operator::kFloorDiv;
    } else if (stream_.at_operator("%")) {
      op = Operator::kMod;
    } else if (!stream_.at_operator("*")) {
      return left;
    }
    stream_.take();
    left = binary(ExprKind::kArithmetic, op, std::move(left), power(), line);
  }
}

ExprPtr ExpressionParser::power() {
  const int line = stream_.line();
  ExprPtr left = unary(true);
  while (stream_.skip_operator("**")) {
    left = binary(ExprKind::kArithmetic, Operator::kPow, std::move(left), unary(true), line);
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  const TokenStream::Level level(stream_);
  const int line = stream_.line();
  ExprPtr node;
  if (stream_.at_operator("-") || stream_.at_operator("+")) {
    const bool minus = stream_.take().text == "-";
    auto sign = std::make_unique<UnaryExpr>(minus ? ExprKind::kNegate : ExprKind::kPositive, line);
    adopt(*sign, sign->operand, unary(false));
    node = std::move(sign);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary() {
  const int line = stream_.line();
  const Token& token = stream_.current();
  switch (token.type) {
    case TokenType::kName: {
      const std::string name = stream_.take().text;
      if (name == "true" || name == "True") return std::make_unique<LiteralExpr>(Value::boolean(true), line);
      if (name == "false" || name == "False")
        return std::make_unique<LiteralExpr>(Value::boolean(false), line);
      if (name == "none" || name == "None") return std::make_unique<LiteralExpr>(None{}, line);
      const NameId id = stream_.name_id(name);
      stream_.count_use(id);
      return std::make_unique<NameExpr>(id, line);
    }
    case TokenType::kText: {
      std::string text = stream_.take().text;
      while (stream_.current().type == TokenType::kText) text += stream_.take().text;
      return std::make_unique<LiteralExpr>(constant_text(std::move(text)), line);
    }
    case TokenType::kInteger:
      return std::make_unique<LiteralExpr>(Value::integer(stream_.take().integer), line);
    case TokenType::kReal:
      return std::make_unique<LiteralExpr>(Value::real(stream_.take().real), line);
    case TokenType::kOperator:
      if (token.text == "(") return parenthesized();
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      break;
    default:
      break;
  }
  TokenStream::fail_at(line, "unexpected " + TokenStream::describe(token));
}

ExprPtr ExpressionParser::parenthesized() {
  const int line = stream_.line();
  stream_.expect_operator("(");
  ExprPtr node;
  if (stream_.at_operator(")")) {
    node = std::make_unique<SequenceExpr>(ExprKind::kTuple, line);
  } else {
    node = tuple();
  }
  stream_.expect_operator(")");
  return node;
}

ExprPtr ExpressionParser::list() {
  auto node = std::make_unique<SequenceExpr>(ExprKind::kList, stream_.line());
  stream_.expect_operator("[");
  while (!stream_.at_operator("]")) {
    append(*node, expression());
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator("]");
  return node;
}

ExprPtr ExpressionParser::dict() {
  auto node = std::make_unique<SequenceExpr>(ExprKind::kDict, stream_.line());
  stream_.expect_operator("{");
  while (!stream_.at_operator("}")) {
    append(*node, expression());
    stream_.expect_operator(":");
    append(*node, expression());
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator("}");
  return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  for (;;) {
    if (stream_.at_operator(".") || stream_.at_operator("[")) {
      node = subscript(std::move(node));
    } else if (stream_.at_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    if (stream_.at_operator("|")) {
      node = filters(std::move(node), false);
    } else if (stream_.at_name("is")) {
      node = test(std::move(node));
    } else if (stream_.at_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  const int line = stream_.line();
  if (stream_.skip_operator("[")) return bracketed(std::move(node), line);
  stream_.expect_operator(".");
  const Token token = stream_.take();
  if (token.type == TokenType::kName) {
    auto attribute = std::make_unique<AttributeExpr>(constant_text(token.text), line);
    adopt(*attribute, attribute->object, std::move(node));
    return attribute;
  }
  if (token.type != TokenType::kInteger) TokenStream::fail_at(token.line, "expected name or number");
  auto item = std::make_unique<ItemExpr>(line);
  adopt(*item, item->object, std::move(node));
  adopt(*item, item->key, std::make_unique<LiteralExpr>(Value::integer(token.integer), line));
  return item;
}

// What stands behind the opening bracket: a key, a slice, or a tuple of keys.
ExprPtr ExpressionParser::bracketed(ExprPtr node, int line) {
  ExprPtr start;
  if (!stream_.at_operator(":")) start = expression();
  if (stream_.skip_operator(":")) {
    auto slice = std::make_unique<SliceExpr>(line);
    adopt(*slice, slice->object, std::move(node));
    if (start != nullptr) adopt(*slice, slice->start, std::move(start));
    if (!stream_.at_operator(":") && !stream_.at_operator("]")) adopt(*slice, slice->stop, expression());
    if (stream_.skip_operator(":") && !stream_.at_operator("]")) adopt(*slice, slice->step, expression());
    stream_.expect_operator("]");
    return slice;
  }
  if (stream_.at_operator(",")) {
    auto keys = std::make_unique<SequenceExpr>(ExprKind::kTuple, line);
    append(*keys, std::move(start));
    while (stream_.skip_operator(",")) append(*keys, expression());
    start = std::move(keys);
  }
  stream_.expect_operator("]");
  auto item = std::make_unique<ItemExpr>(line);
  adopt(*item, item->object, std::move(node));
  adopt(*item, item->key, std::move(start));
  return item;
}

// The arguments in parentheses; returns the greatest height among them.
int ExpressionParser::arguments(CallArguments& out) {
  const int line = stream_.line();
  int height = 0;
  const auto argument = [&] {
    ExprPtr node = expression();
    height = std::max(height, node->height);
    return node;
  };
  const auto require = [line](bool good) {
    if (!good) TokenStream::fail_at(line, "invalid syntax for function call expression");
  };
  stream_.expect_operator("(");
  while (!stream_.at_operator(")")) {
    if (stream_.skip_operator("*")) {
      require(out.unpacked == nullptr && out.unpacked_named == nullptr);
      out.unpacked = argument();
    } else if (stream_.skip_operator("**")) {
      require(out.unpacked_named == nullptr);
      out.unpacked_named = argument();
    } else if (stream_.current().type == TokenType::kName &&
               TokenStream::is(stream_.look(), TokenType::kOperator, "=")) {
      require(out.unpacked_named == nullptr);
      Text name = constant_text(stream_.take().text);
      stream_.take();
      out.named.emplace_back(std::move(name), argument());
    } else {
      require(out.unpacked == nullptr && out.unpacked_named == nullptr && out.named.empty());
      out.positional.push_back(argument());
    }
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator(")");
  return height;
}

namespace {

void raise_height(Expr& node, int arguments_height) {
  node.height = std::max(node.height, arguments_height + 1);
  if (node.height > kMaxHeight) TokenStream::fail_at(node.line, "an expression has too many levels");
}

}  // namespace

ExprPtr ExpressionParser::call(ExprPtr callee) {
  auto node = std::make_unique<CallExpr>(stream_.line());
  adopt(*node, node->callee, std::move(callee));
  raise_height(*node, arguments(node->arguments));
  return node;
}

std::string ExpressionParser::dotted_name() {
  std::string name = stream_.take_any_name();
  while (stream_.skip_operator(".")) name += "." + stream_.take_any_name();
  return name;
}

ExprPtr ExpressionParser::filters(ExprPtr operand, bool inline_start) {
  while (inline_start || stream_.at_operator("|")) {
    if (!inline_start) stream_.take();
    inline_start = false;
    auto node = std::make_unique<FilterExpr>(stream_.line());
    node->name = constant_text(dotted_name());
    node->function = find_filter(node->name->bytes);
    if (operand != nullptr) adopt(*node, node->operand, std::move(operand));
    if (stream_.at_operator("(")) raise_height(*node, arguments(node->arguments));
    operand = std::move(node);
  }
  return operand;
}

ExprPtr ExpressionParser::test(ExprPtr operand) {
  const int line = stream_.line();
  stream_.expect_name("is");
  const bool negated = stream_.skip_name("not");
  auto node = std::make_unique<TestExpr>(line);
  node->name = constant_text(dotted_name());
  node->function = find_test(node->name->bytes);
  adopt(*node, node->operand, std::move(operand));
  if (stream_.at_operator("(")) {
    raise_height(*node, arguments(node->arguments));
  } else if (begins_operand(stream_.current())) {
    if (stream_.at_name("is")) TokenStream::fail_at(line, "You cannot chain multiple tests with is");
    ExprPtr argument = postfix(primary());
    raise_height(*node, argument->height);
    node->arguments.positional.push_back(std::move(argument));
  }
  if (!negated) return node;
  auto inverse = std::make_unique<UnaryExpr>(ExprKind::kNot, line);
  adopt(*inverse, inverse->operand, std::move(node));
  return inverse;
}

}  // namespace shoal::tokenizer::jinja
