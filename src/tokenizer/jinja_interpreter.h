// Runs a parsed template.
//
// Thread-safety: none; one rendering. Many interpreters may share one Template.
// Ownership: refers to the Template and the Heap, which outlive it.
// Invariants: whatever the template does ends with a text or a Failure; line() then says where it was.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_scope.h"
#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

class Interpreter {
 public:
  Interpreter(const Template& source, Heap& heap);

  // A variable of the outermost scope; nothing happens where the template never names it.
  void define(std::string_view name, Value value);
  std::string render();
  // Of the statement or expression that was begun last.
  int line() const { return line_; }

 private:
  friend struct LoopObject;
  friend struct MacroObject;

  enum class Flow { kNext, kBreak, kContinue };

  // Statements: jinja_interpreter.cc.
  Flow run(const Body& body, Scope& scope, Output& out);
  Flow run_statement(const Statement& statement, Scope& scope, Output& out);
  Flow run_if(const IfStatement& node, Scope& scope, Output& out);
  void run_for(const ForStatement& node, Scope& scope, Output& out);
  // One pass of a loop over `iterable`; depth counts recursive loops.
  void run_loop(const ForStatement& node, const Value& iterable, Scope& scope, int depth, Output& out);
  Flow run_inner(const Body& body, bool captured, Scope& scope, Output& out);
  Flow run_with(const WithStatement& node, Scope& scope, Output& out);
  Flow run_set_block(const SetBlockStatement& node, Scope& scope);
  Flow run_filter_block(const FilterBlockStatement& node, Scope& scope, Output& out);
  void run_call_block(const CallBlockStatement& node, Scope& scope, Output& out);
  void assign(const Target& target, Value value, Scope& scope);
  // The body of a macro with its arguments.
  Value call_macro(const MacroDefinition& macro, Scope& closure, Arguments& arguments);
  void bind_arguments(const MacroDefinition& macro, Arguments& arguments, Scope& scope);

  // Expressions: jinja_evaluate.cc.
  Value evaluate(const Expr& node, Scope& scope);
  Value evaluate_name(const NameExpr& node, Scope& scope);
  Value evaluate_sequence(const SequenceExpr& node, Scope& scope);
  Value evaluate_dict(const SequenceExpr& node, Scope& scope);
  Value evaluate_concat(const SequenceExpr& node, Scope& scope);
  Value evaluate_slice(const SliceExpr& node, Scope& scope);
  Value evaluate_call(const CallExpr& node, Scope& scope, const Value* caller);
  Value evaluate_test(const TestExpr& node, Scope& scope);
  Value evaluate_binary(const BinaryExpr& node, Scope& scope);
  Value evaluate_compare(const CompareExpr& node, Scope& scope);
  Value evaluate_conditional(const ConditionalExpr& node, Scope& scope);
  Value apply_filter(const FilterExpr& node, const Value& operand, Scope& scope);
  // A filter block's chain with the block's text at its head.
  Value apply_chain(const Expr& chain, const Value& text, Scope& scope);
  Arguments evaluate_arguments(const CallArguments& arguments, Scope& scope);
  Value call(const Value& callee, Arguments& arguments);

  std::optional<NameId> find_name(std::string_view name) const;

  const Template& template_;
  Heap& heap_;
  Scope root_;
  int line_ = 1;
  std::optional<NameId> loop_;
  std::optional<NameId> caller_;
  std::optional<NameId> varargs_;
  std::optional<NameId> kwargs_;
};

// A macro, or the body of a call block, together with the scope it was defined in.
struct MacroObject : Callable {
  MacroObject(Interpreter& i, const MacroDefinition& d, Scope& s)
      : interpreter(i), definition(d), closure(s) {}
  Value call(Heap&, Arguments& arguments) override {
    return interpreter.call_macro(definition, closure, arguments);
  }
  bool attribute(Heap& heap, std::string_view name, Value& out) override;
  std::string describe() const override;

  Interpreter& interpreter;
  const MacroDefinition& definition;
  Scope& closure;
};

}  // namespace shoal::tokenizer::jinja
