// The expression half of Interpreter.

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_sequence.h"

namespace shoal::tokenizer::jinja {

Value Interpreter::evaluate(const Expr& node, Scope& scope) {
  heap_.step();
  if (node.kind == ExprKind::kLiteral) return static_cast<const LiteralExpr&>(node).value;
  if (node.kind == ExprKind::kName) return evaluate_name(static_cast<const NameExpr&>(node), scope);
  const DepthGuard guard(heap_);
  line_ = node.line;
  switch (node.kind) {
    case ExprKind::kLiteral:
    case ExprKind::kName:
      break;
    case ExprKind::kList:
    case ExprKind::kTuple:
      return evaluate_sequence(static_cast<const SequenceExpr&>(node), scope);
    case ExprKind::kDict:
      return evaluate_dict(static_cast<const SequenceExpr&>(node), scope);
    case ExprKind::kConcat:
      return evaluate_concat(static_cast<const SequenceExpr&>(node), scope);
    case ExprKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(node);
      return get_attribute(heap_, evaluate(*attribute.object, scope), attribute.name);
    }
    case ExprKind::kItem: {
      const auto& item = static_cast<const ItemExpr&>(node);
      const Value object = evaluate(*item.object, scope);
      return get_item(heap_, object, evaluate(*item.key, scope));
    }
    case ExprKind::kSlice:
      return evaluate_slice(static_cast<const SliceExpr&>(node), scope);
    case ExprKind::kCall:
      return evaluate_call(static_cast<const CallExpr&>(node), scope, nullptr);
    case ExprKind::kFilter: {
      const auto& filter = static_cast<const FilterExpr&>(node);
      return apply_filter(filter, evaluate(*filter.operand, scope), scope);
    }
    case ExprKind::kTest:
      return evaluate_test(static_cast<const TestExpr&>(node), scope);
    case ExprKind::kNegate:
      return negate(evaluate(*static_cast<const UnaryExpr&>(node).operand, scope));
    case ExprKind::kPositive:
      return positive(evaluate(*static_cast<const UnaryExpr&>(node).operand, scope));
    case ExprKind::kNot:
      return Value::boolean(!truthy(evaluate(*static_cast<const UnaryExpr&>(node).operand, scope)));
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kArithmetic:
      return evaluate_binary(static_cast<const BinaryExpr&>(node), scope);
    case ExprKind::kCompare:
      return evaluate_compare(static_cast<const CompareExpr&>(node), scope);
    case ExprKind::kConditional:
      return evaluate_conditional(static_cast<const ConditionalExpr&>(node), scope);
  }
  return {};
}

Value Interpreter::evaluate_name(const NameExpr& node, Scope& scope) {
  if (const Value* value = scope.find(node.name)) return *value;
  return Undefined{template_.names[node.name], nullptr};
}

Value Interpreter::evaluate_sequence(const SequenceExpr& node, Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& item : node.items) items.push_back(evaluate(*item, scope));
  return make_list(heap_, std::move(items),
                   node.kind == ExprKind::kTuple ? ListKind::kTuple : ListKind::kList);
}

Value Interpreter::evaluate_dict(const SequenceExpr& node, Scope& scope) {
  Dict* dict = heap_.make<Dict>();
  for (std::size_t i = 0; i < node.items.size(); i += 2) {
    const Value key = evaluate(*node.items[i], scope);
    dict->set(heap_, key, evaluate(*node.items[i + 1], scope));
  }
  return dict;
}

Value Interpreter::evaluate_concat(const SequenceExpr& node, Scope& scope) {
  Output out(heap_);
  for (const ExprPtr& item : node.items) append_str(heap_, evaluate(*item, scope), out);
  return make_text(heap_, out.take());
}

Value Interpreter::evaluate_slice(const SliceExpr& node, Scope& scope) {
  const Value object = evaluate(*node.object, scope);
  const auto bound = [&](const ExprPtr& part) {
    return part == nullptr ? Value(None{}) : evaluate(*part, scope);
  };
  const Value start = bound(node.start);
  const Value stop = bound(node.stop);
  return slice(heap_, object, start, stop, bound(node.step));
}

Arguments Interpreter::evaluate_arguments(const CallArguments& source, Scope& scope) {
  Arguments out;
  out.positional.reserve(source.positional.size());
  for (const ExprPtr& argument : source.positional) out.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, argument] : source.named) out.named.emplace_back(name, evaluate(*argument, scope));
  if (source.unpacked != nullptr) {
    for (Value& item : collect(heap_, evaluate(*source.unpacked, scope)))
      out.positional.push_back(std::move(item));
  }
  if (source.unpacked_named != nullptr) {
    const Value named = evaluate(*source.unpacked_named, scope);
    if (named.dict() == nullptr)
      fail("argument after ** must be a mapping, not " + std::string(type_name(named)));
    for (const Dict::Entry& entry : named.dict()->entries) {
      heap_.step();
      if (!entry.key.is_text()) fail("keywords must be strings");
      out.named.emplace_back(entry.key.text(), entry.value);
    }
  }
  return out;
}

Value Interpreter::evaluate_call(const CallExpr& node, Scope& scope, const Value* caller) {
  Value self;
  Value callee;
  MethodFunction method = nullptr;
  if (node.callee->kind == ExprKind::kAttribute) {
    // value.method(...) without a bound method in between.
    const auto& attribute = static_cast<const AttributeExpr&>(*node.callee);
    self = evaluate(*attribute.object, scope);
    method = find_method(self, attribute.name->bytes);
    if (method == nullptr) callee = get_attribute(heap_, self, attribute.name);
  } else {
    callee = evaluate(*node.callee, scope);
  }
  Arguments arguments = evaluate_arguments(node.arguments, scope);
  if (caller != nullptr) arguments.named.emplace_back(constant_text("caller"), *caller);
  line_ = node.line;
  return method != nullptr ? method(heap_, self, arguments) : call(callee, arguments);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  if (Callable* callable = callee.callable()) return callable->call(heap_, arguments);
  require_defined(callee);
  fail(std::string("'") + type_name(callee) + "' object is not callable");
}

Value Interpreter::apply_filter(const FilterExpr& node, const Value& operand, Scope& scope) {
  if (node.function == nullptr) fail("No filter named " + repr_text(node.name->bytes) + ".");
  Arguments arguments = evaluate_arguments(node.arguments, scope);
  line_ = node.line;
  return node.function(heap_, operand, arguments);
}

Value Interpreter::apply_chain(const Expr& chain, const Value& text, Scope& scope) {
  const DepthGuard guard(heap_);
  const auto& filter = static_cast<const FilterExpr&>(chain);
  if (filter.operand == nullptr) return apply_filter(filter, text, scope);
  return apply_filter(filter, apply_chain(*filter.operand, text, scope), scope);
}

Value Interpreter::evaluate_test(const TestExpr& node, Scope& scope) {
  const Value operand = evaluate(*node.operand, scope);
  if (node.function == nullptr) fail("No test named " + repr_text(node.name->bytes) + ".");
  const Arguments arguments = evaluate_arguments(node.arguments, scope);
  return Value::boolean(node.function(heap_, operand, arguments));
}

Value Interpreter::evaluate_binary(const BinaryExpr& node, Scope& scope) {
  Value left = evaluate(*node.left, scope);
  if (node.kind == ExprKind::kAnd) return truthy(left) ? evaluate(*node.right, scope) : left;
  if (node.kind == ExprKind::kOr) return truthy(left) ? left : evaluate(*node.right, scope);
  const Value right = evaluate(*node.right, scope);
  line_ = node.line;
  return arithmetic(heap_, node.op, left, right);
}

Value Interpreter::evaluate_compare(const CompareExpr& node, Scope& scope) {
  Value left = evaluate(*node.first, scope);
  for (const auto& [comparison, operand] : node.rest) {
    Value right = evaluate(*operand, scope);
    if (!compare(heap_, comparison, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const ConditionalExpr& node, Scope& scope) {
  if (truthy(evaluate(*node.condition, scope))) return evaluate(*node.then, scope);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise, scope);
  const std::string sentence = "the inline if-expression on line " + std::to_string(node.line) +
                               " evaluated to false and no else section was defined.";
  return Undefined{heap_.text(sentence), Undefined::kSentence};
}

}  // namespace shoal::tokenizer::jinja
