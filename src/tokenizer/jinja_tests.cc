#include "tokenizer/jinja_tests.h"

#include <string>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_split.h"
#include "tokenizer/jinja_unicode.h"

namespace shoal::tokenizer::jinja {
namespace {

// Defines a test without arguments from an expression over `value`.
template <bool (*kPredicate)(const Value&)>
bool plain(Heap&, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "this test", {});
  return kPredicate(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.as<bool>() != nullptr; }
bool is_true(const Value& v) { return is_boolean(v) && *v.as<bool>(); }
bool is_false(const Value& v) { return is_boolean(v) && !*v.as<bool>(); }
bool is_integer(const Value& v) { return v.as<std::int64_t>() != nullptr; }
bool is_float(const Value& v) { return v.as<double>() != nullptr; }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_text(); }
bool is_mapping(const Value& v) { return v.dict() != nullptr; }
bool is_callable(const Value& v) { return v.callable() != nullptr || v.is_undefined(); }
bool is_escaped(const Value& v) { return v.is_text() && v.text()->markup; }
// Whatever has a length and takes subscripts: texts, lists, dicts; an undefined value counts too.
bool is_sequence(const Value& v) {
  if (v.is_text() || v.dict() != nullptr || v.is_undefined()) return true;
  const List* list = v.list();
  return list != nullptr && (list->kind == ListKind::kList || list->kind == ListKind::kTuple ||
                             list->kind == ListKind::kRange || list->kind == ListKind::kGroup);
}

// value % divisor, as Python signs it.
Value remainder_of(Heap& heap, const Value& value, const Value& divisor) {
  require_defined(value);
  if (!value.is_number()) fail(std::string("a number is required, not ") + type_name(value));
  return arithmetic(heap, Operator::kMod, value, divisor);
}

template <std::int64_t kRemainder>
bool has_parity(Heap& heap, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "this test", {});
  return equals(heap, remainder_of(heap, value, Value::integer(2)), Value::integer(kRemainder));
}

template <CharClass kCase>
bool has_case(Heap& heap, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "this test", {});
  return has_only_case(text_of(heap, value)->bytes, kCase);
}

bool divisible_by(Heap& heap, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "divisibleby", {"num"});
  return equals(heap, remainder_of(heap, value, parameters.at(0)), Value::integer(0));
}

template <Comparison kComparison>
bool compared(Heap& heap, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "this test", {"other"});
  return compare(heap, kComparison, value, parameters.at(0));
}

bool same_as(Heap& heap, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "sameas", {"other"});
  const Value& other = parameters.at(0);
  if (value.list() != nullptr || value.dict() != nullptr) {
    return value.list() == other.list() && value.dict() == other.dict();
  }
  return std::string_view(type_name(value)) == type_name(other) && equals(heap, value, other);
}

bool names_filter(Heap&, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "filter", {});
  return value.is_text() && find_filter(value.str()) != nullptr;
}

bool names_test(Heap&, const Value& value, const Arguments& arguments) {
  const Parameters parameters(arguments, "test", {});
  return value.is_text() && find_test(value.str()) != nullptr;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> table = {
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"none", plain<is_none>},
      {"boolean", plain<is_boolean>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"integer", plain<is_integer>},
      {"float", plain<is_float>},
      {"number", plain<is_number>},
      {"string", plain<is_string>},
      {"mapping", plain<is_mapping>},
      {"sequence", plain<is_sequence>},
      {"iterable", plain<is_iterable>},
      {"callable", plain<is_callable>},
      {"escaped", plain<is_escaped>},
      {"odd", has_parity<1>},
      {"even", has_parity<0>},
      {"upper", has_case<CharClass::kUpper>},
      {"lower", has_case<CharClass::kLower>},
      {"divisibleby", divisible_by},
      {"sameas", same_as},
      {"filter", names_filter},
      {"test", names_test},
      {"in", compared<Comparison::kIn>},
      {"==", compared<Comparison::kEqual>},
      {"eq", compared<Comparison::kEqual>},
      {"equalto", compared<Comparison::kEqual>},
      {"!=", compared<Comparison::kNotEqual>},
      {"ne", compared<Comparison::kNotEqual>},
      {">", compared<Comparison::kGreater>},
      {"gt", compared<Comparison::kGreater>},
      {"greaterthan", compared<Comparison::kGreater>},
      {">=", compared<Comparison::kGreaterEqual>},
      {"ge", compared<Comparison::kGreaterEqual>},
      {"<", compared<Comparison::kLess>},
      {"lt", compared<Comparison::kLess>},
      {"lessthan", compared<Comparison::kLess>},
      {"<=", compared<Comparison::kLessEqual>},
      {"le", compared<Comparison::kLessEqual>},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace shoal::tokenizer::jinja
