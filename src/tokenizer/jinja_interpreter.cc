#include "tokenizer/jinja_interpreter.h"

#include <algorithm>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_globals.h"
#include "tokenizer/jinja_loop.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"

namespace shoal::tokenizer::jinja {

Interpreter::Interpreter(const Template& source, Heap& heap)
    : template_(source),
      heap_(heap),
      root_(source.names.size()),
      loop_(find_name("loop")),
      caller_(find_name("caller")),
      varargs_(find_name("varargs")),
      kwargs_(find_name("kwargs")) {
  for (NameId id = 0; id < source.names.size(); ++id) {
    if (Callable* global = make_global(heap, source.names[id]->bytes)) root_.set(id, global);
  }
}

std::optional<NameId> Interpreter::find_name(std::string_view name) const {
  for (NameId id = 0; id < template_.names.size(); ++id) {
    if (template_.names[id]->bytes == name) return id;
  }
  return std::nullopt;
}

void Interpreter::define(std::string_view name, Value value) {
  if (const std::optional<NameId> id = find_name(name)) root_.set(*id, std::move(value));
}

std::string Interpreter::render() {
  Output out(heap_);
  run(template_.body, root_, out);
  return out.take();
}

Interpreter::Flow Interpreter::run(const Body& body, Scope& scope, Output& out) {
  const DepthGuard guard(heap_);
  for (const StatementPtr& statement : body) {
    heap_.step();
    const Flow flow = run_statement(*statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement, Scope& scope, Output& out) {
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      out.append(static_cast<const TextStatement&>(statement).text);
      break;
    case StatementKind::kPrint:
      append_str(heap_, evaluate(*static_cast<const PrintStatement&>(statement).value, scope), out);
      break;
    case StatementKind::kIf:
      return run_if(static_cast<const IfStatement&>(statement), scope, out);
    case StatementKind::kFor:
      run_for(static_cast<const ForStatement&>(statement), scope, out);
      break;
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      assign(node.target, evaluate(*node.value, scope), scope);
      break;
    }
    case StatementKind::kSetBlock:
      return run_set_block(static_cast<const SetBlockStatement&>(statement), scope);
    case StatementKind::kMacro: {
      const auto& node = static_cast<const MacroStatement&>(statement);
      scope.set(node.name, heap_.make<MacroObject>(*this, node.definition, scope));
      break;
    }
    case StatementKind::kCallBlock:
      run_call_block(static_cast<const CallBlockStatement&>(statement), scope, out);
      break;
    case StatementKind::kFilterBlock:
      return run_filter_block(static_cast<const FilterBlockStatement&>(statement), scope, out);
    case StatementKind::kWith:
      return run_with(static_cast<const WithStatement&>(statement), scope, out);
    case StatementKind::kScope: {
      const auto& node = static_cast<const ScopeStatement&>(statement);
      return run_inner(node.body, node.captured, scope, out);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const IfStatement& node, Scope& scope, Output& out) {
  for (const auto& [condition, body] : node.branches) {
    if (truthy(evaluate(*condition, scope))) return run(body, scope, out);
  }
  return node.otherwise.empty() ? Flow::kNext : run(node.otherwise, scope, out);
}

Interpreter::Flow Interpreter::run_inner(const Body& body, bool captured, Scope& scope, Output& out) {
  if (captured) return run(body, *heap_.make<Scope>(&scope), out);
  Scope inner(&scope);
  return run(body, inner, out);
}

void Interpreter::run_for(const ForStatement& node, Scope& scope, Output& out) {
  run_loop(node, evaluate(*node.iterable, scope), scope, 0, out);
}

void Interpreter::run_loop(const ForStatement& node, const Value& iterable, Scope& scope, int depth,
                           Output& out) {
  LoopObject* loop = heap_.make<LoopObject>(*this, node, scope, iterable, depth);
  Scope reused(&scope);
  bool any = false;
  while (loop->advance()) {
    any = true;
    reused.clear();
    Scope& inner = node.captured ? *heap_.make<Scope>(&scope) : reused;
    if (loop_) inner.set(*loop_, loop);
    assign(node.target, loop->current(), inner);
    if (run(node.body, inner, out) == Flow::kBreak) break;
  }
  loop->finish();
  if (!any && !node.otherwise.empty()) run_inner(node.otherwise, node.captured, scope, out);
}

Interpreter::Flow Interpreter::run_with(const WithStatement& node, Scope& scope, Output& out) {
  Scope local(&scope);
  Scope& inner = node.captured ? *heap_.make<Scope>(&scope) : local;
  for (const auto& [target, value] : node.bindings) assign(target, evaluate(*value, scope), inner);
  return run(node.body, inner, out);
}

Interpreter::Flow Interpreter::run_set_block(const SetBlockStatement& node, Scope& scope) {
  Output inner(heap_);
  const Flow flow = run_inner(node.body, node.captured, scope, inner);
  if (flow != Flow::kNext) return flow;
  Value text = make_text(heap_, inner.take());
  if (node.filter != nullptr) text = apply_chain(*node.filter, text, scope);
  assign(node.target, std::move(text), scope);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_filter_block(const FilterBlockStatement& node, Scope& scope, Output& out) {
  Output inner(heap_);
  const Flow flow = run_inner(node.body, node.captured, scope, inner);
  if (flow != Flow::kNext) return flow;
  append_str(heap_, apply_chain(*node.filter, make_text(heap_, inner.take()), scope), out);
  return Flow::kNext;
}

void Interpreter::run_call_block(const CallBlockStatement& node, Scope& scope, Output& out) {
  const Value caller = heap_.make<MacroObject>(*this, node.caller, scope);
  append_str(heap_, evaluate_call(static_cast<const CallExpr&>(*node.call), scope, &caller), out);
}

void Interpreter::assign(const Target& target, Value value, Scope& scope) {
  if (target.is_tuple) {
    std::vector<Value> items = collect(heap_, value);
    const std::size_t expected = target.parts.size();
    if (items.size() != expected) {
      fail(items.size() < expected ? "not enough values to unpack (expected " + std::to_string(expected) +
                                         ", got " + std::to_string(items.size()) + ")"
                                   : "too many values to unpack (expected " + std::to_string(expected) + ")");
    }
    for (std::size_t i = 0; i < expected; ++i) assign(target.parts[i], std::move(items[i]), scope);
    return;
  }
  if (target.attribute == nullptr) {
    scope.set(target.name, std::move(value));
    return;
  }
  const Value* owner = scope.find(target.name);
  if (owner == nullptr || owner->space() == nullptr) fail("cannot assign attribute on non-namespace object");
  owner->space()->fields->set(heap_, target.attribute, std::move(value));
}

Value Interpreter::call_macro(const MacroDefinition& macro, Scope& closure, Arguments& arguments) {
  const DepthGuard guard(heap_);
  Scope local(&closure);
  Scope& scope = macro.captured ? *heap_.make<Scope>(&closure) : local;
  bind_arguments(macro, arguments, scope);
  Output out(heap_);
  run(macro.body, scope, out);
  return make_text(heap_, out.take());
}

void Interpreter::bind_arguments(const MacroDefinition& macro, Arguments& arguments, Scope& scope) {
  const std::size_t count = macro.parameters.size();
  const std::size_t given = std::min(count, arguments.positional.size());
  const std::size_t first_default = count - macro.defaults.size();
  std::vector<bool> missing(count, false);
  bool caller_bound = false;
  for (std::size_t i = 0; i < count; ++i) {
    heap_.step(1 + arguments.named.size() / 8);
    Value value;
    if (i < given) {
      value = arguments.positional[i];
    } else if (!arguments.take(macro.parameter_names[i]->bytes, value)) {
      missing[i] = true;
      continue;
    }
    caller_bound |= caller_ && macro.parameters[i] == *caller_;
    scope.set(macro.parameters[i], std::move(value));
  }
  if (macro.uses_caller && caller_ && !caller_bound) {
    Value caller = Undefined{heap_.text("No caller defined"), Undefined::kSentence};
    arguments.take("caller", caller);
    scope.set(*caller_, std::move(caller));
  }
  if (macro.uses_kwargs && kwargs_) {
    Dict* rest = heap_.make<Dict>();
    for (const auto& [name, value] : arguments.named) rest->set(heap_, name, value);
    scope.set(*kwargs_, rest);
  } else if (!arguments.named.empty()) {
    fail("macro " + repr_text(macro.name->bytes) + " takes no keyword argument " +
         repr_text(arguments.named[0].first->bytes));
  }
  if (macro.uses_varargs && varargs_) {
    const auto from = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
    std::vector<Value> rest(from, arguments.positional.end());
    scope.set(*varargs_, make_list(heap_, std::move(rest), ListKind::kTuple));
  } else if (arguments.positional.size() > count) {
    fail("macro " + repr_text(macro.name->bytes) + " takes not more than " + std::to_string(count) +
         " argument(s)");
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!missing[i]) continue;
    Value value;
    if (i >= first_default) {
      value = evaluate(*macro.defaults[i - first_default], scope);
    } else {
      const std::string sentence =
          "parameter " + repr_text(macro.parameter_names[i]->bytes) + " was not provided";
      value = Undefined{heap_.text(sentence), Undefined::kSentence};
    }
    scope.set(macro.parameters[i], std::move(value));
  }
}

bool MacroObject::attribute(Heap& heap, std::string_view name, Value& out) {
  if (name == "name") {
    out = definition.name;
  } else if (name == "arguments") {
    std::vector<Value> names(definition.parameter_names.begin(), definition.parameter_names.end());
    out = make_list(heap, std::move(names), ListKind::kTuple);
  } else if (name == "catch_kwargs") {
    out = Value::boolean(definition.uses_kwargs);
  } else if (name == "catch_varargs") {
    out = Value::boolean(definition.uses_varargs);
  } else if (name == "caller") {
    out = Value::boolean(definition.uses_caller);
  } else {
    return false;
  }
  return true;
}

std::string MacroObject::describe() const { return "<Macro " + repr_text(definition.name->bytes) + ">"; }

}  // namespace shoal::tokenizer::jinja
