// A parsed template: statements and expressions.
//
// Thread-safety: constant after parsing; any number of renderings may walk it at once.
// Ownership: each node owns its children; literals are texts that belong to no rendering.
// Invariants: no expression is higher than kMaxHeight and no statement nests deeper than kMaxNesting
//   allows, so walking and destroying the tree needs a bounded stack. Names are numbers into Template::names.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_tests.h"
#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

using NameId = std::uint32_t;

enum class ExprKind : std::uint8_t {
  kLiteral,
  kName,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNegate,
  kPositive,
  kNot,
  kAnd,
  kOr,
  kArithmetic,
  kConcat,
  kCompare,
  kConditional,
};

struct Expr {
  Expr(ExprKind k, int l) : kind(k), line(l) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
  int height = 1;
};
using ExprPtr = std::unique_ptr<Expr>;

struct LiteralExpr : Expr {
  LiteralExpr(Value v, int l) : Expr(ExprKind::kLiteral, l), value(std::move(v)) {}
  Value value;
};

struct NameExpr : Expr {
  NameExpr(NameId n, int l) : Expr(ExprKind::kName, l), name(n) {}
  NameId name;
};

// kList, kTuple, kConcat: the parts. kDict: keys and values in turn.
struct SequenceExpr : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> items;
};

struct AttributeExpr : Expr {
  AttributeExpr(Text n, int l) : Expr(ExprKind::kAttribute, l), name(std::move(n)) {}
  ExprPtr object;
  Text name;
};

struct ItemExpr : Expr {
  explicit ItemExpr(int l) : Expr(ExprKind::kItem, l) {}
  ExprPtr object;
  ExprPtr key;
};

struct SliceExpr : Expr {
  explicit SliceExpr(int l) : Expr(ExprKind::kSlice, l) {}
  ExprPtr object;
  ExprPtr start;  // null where left out, as stop and step
  ExprPtr stop;
  ExprPtr step;
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Text, ExprPtr>> named;
  ExprPtr unpacked;        // *expr
  ExprPtr unpacked_named;  // **expr
};

struct CallExpr : Expr {
  explicit CallExpr(int l) : Expr(ExprKind::kCall, l) {}
  ExprPtr callee;
  CallArguments arguments;
};

struct FilterExpr : Expr {
  explicit FilterExpr(int l) : Expr(ExprKind::kFilter, l) {}
  ExprPtr operand;  // null at the head of a filter block's chain, where the body takes its place
  Text name;
  FilterFunction function = nullptr;  // null where there is no such filter: fails when reached, as in Jinja
  CallArguments arguments;
};

struct TestExpr : Expr {
  explicit TestExpr(int l) : Expr(ExprKind::kTest, l) {}
  ExprPtr operand;
  Text name;
  TestFunction function = nullptr;
  CallArguments arguments;
};

// kNegate, kPositive, kNot.
struct UnaryExpr : Expr {
  using Expr::Expr;
  ExprPtr operand;
};

// kAnd, kOr, kArithmetic.
struct BinaryExpr : Expr {
  using Expr::Expr;
  Operator op = Operator::kAdd;
  ExprPtr left;
  ExprPtr right;
};

// a < b <= c ...
struct CompareExpr : Expr {
  explicit CompareExpr(int l) : Expr(ExprKind::kCompare, l) {}
  ExprPtr first;
  std::vector<std::pair<Comparison, ExprPtr>> rest;
};

struct ConditionalExpr : Expr {
  explicit ConditionalExpr(int l) : Expr(ExprKind::kConditional, l) {}
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;  // null: undefined
};

// Where an assignment goes: a name, name.attribute of a namespace, or a tuple of targets.
struct Target {
  int line = 0;
  NameId name = 0;
  Text attribute;  // null for a plain name
  std::vector<Target> parts;
  bool is_tuple = false;
};

enum class StatementKind : std::uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind k, int l) : kind(k), line(l) {}
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct TextStatement : Statement {
  TextStatement(std::string t, int l) : Statement(StatementKind::kText, l), text(std::move(t)) {}
  std::string text;
};

struct PrintStatement : Statement {
  explicit PrintStatement(int l) : Statement(StatementKind::kPrint, l) {}
  ExprPtr value;
};

struct IfStatement : Statement {
  explicit IfStatement(int l) : Statement(StatementKind::kIf, l) {}
  std::vector<std::pair<ExprPtr, Body>> branches;  // if and elif
  Body otherwise;
};

struct ForStatement : Statement {
  explicit ForStatement(int l) : Statement(StatementKind::kFor, l) {}
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // null where there is none
  Body body;
  Body otherwise;
  bool recursive = false;
  // A macro, call block or recursive loop inside may outlive an iteration and still see its variables.
  bool captured = false;
};

struct SetStatement : Statement {
  explicit SetStatement(int l) : Statement(StatementKind::kSet, l) {}
  Target target;
  ExprPtr value;
};

struct SetBlockStatement : Statement {
  explicit SetBlockStatement(int l) : Statement(StatementKind::kSetBlock, l) {}
  Target target;
  ExprPtr filter;  // chain of FilterExpr, or null
  Body body;
  bool captured = false;
};

// A macro's signature and body; a call block's too.
struct MacroDefinition {
  Text name;
  std::vector<NameId> parameters;
  std::vector<Text> parameter_names;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  // Whether the body mentions these; a macro takes extra arguments only then.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  bool captured = false;  // as in ForStatement
};

struct MacroStatement : Statement {
  explicit MacroStatement(int l) : Statement(StatementKind::kMacro, l) {}
  NameId name = 0;
  MacroDefinition definition;
};

struct CallBlockStatement : Statement {
  explicit CallBlockStatement(int l) : Statement(StatementKind::kCallBlock, l) {}
  ExprPtr call;  // a CallExpr
  MacroDefinition caller;
};

struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(int l) : Statement(StatementKind::kFilterBlock, l) {}
  ExprPtr filter;
  Body body;
  bool captured = false;
};

struct WithStatement : Statement {
  explicit WithStatement(int l) : Statement(StatementKind::kWith, l) {}
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
  bool captured = false;
};

// A body with variables of its own: a block.
struct ScopeStatement : Statement {
  explicit ScopeStatement(int l) : Statement(StatementKind::kScope, l) {}
  Body body;
  bool captured = false;
};

// kBreak and kContinue are plain Statements.

struct Template {
  Body body;
  std::vector<Text> names;
};

}  // namespace shoal::tokenizer::jinja
