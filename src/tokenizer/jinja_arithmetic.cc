// The arithmetic half of jinja_operators.h: + - * / // % ** and the signs.

#include <cmath>
#include <limits>
#include <string>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"

namespace shoal::tokenizer::jinja {
namespace {

const char* symbol_of(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSub:
      return "-";
    case Operator::kMul:
      return "*";
    case Operator::kDiv:
      return "/";
    case Operator::kFloorDiv:
      return "//";
    case Operator::kMod:
      return "%";
    case Operator::kPow:
      return "** or pow()";
  }
  return "?";
}

[[noreturn]] void fail_operands(Operator op, const Value& a, const Value& b) {
  if (op == Operator::kAdd && a.is_text()) {
    fail(std::string("can only concatenate str (not \"") + type_name(b) + "\") to str");
  }
  if (op == Operator::kAdd && a.list() != nullptr && a.list()->kind == ListKind::kList) {
    fail(std::string("can only concatenate list (not \"") + type_name(b) + "\") to list");
  }
  fail(std::string("unsupported operand type(s) for ") + symbol_of(op) + ": '" + type_name(a) + "' and '" +
       type_name(b) + "'");
}

[[noreturn]] void fail_overflow() { fail("integer result is beyond 64 bits"); }

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<std::int64_t>::min()) fail_overflow();
    return -a;
  }
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t floor_modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

Value integer_arithmetic(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case Operator::kSub:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case Operator::kMul:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case Operator::kDiv:
      if (b == 0) fail("division by zero");
      // 80 bits hold both exactly: Python divides integers exactly and rounds once.
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Operator::kFloorDiv:
      return Value::integer(floor_divide(a, b));
    case Operator::kMod:
      return Value::integer(floor_modulo(a, b));
    case Operator::kPow:
      if (b >= 0) return Value::integer(integer_power(a, b));
      if (a == 0) fail("0.0 cannot be raised to a negative power");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return {};
}

double real_power(double a, double b) {
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::floor(b) != b) fail("a negative number cannot be raised to a fractional power");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("the power is too large a number");
  return result;
}

Value real_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSub:
      return Value::real(a - b);
    case Operator::kMul:
      return Value::real(a * b);
    case Operator::kDiv:
      if (b == 0) fail("float division by zero");
      return Value::real(a / b);
    case Operator::kFloorDiv:
    case Operator::kMod: {
      if (b == 0) fail(op == Operator::kMod ? "float modulo" : "float floor division by zero");
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      return Value::real(op == Operator::kMod ? rest : std::floor((a - rest) / b + 0.5));
    }
    case Operator::kPow:
      return Value::real(real_power(a, b));
  }
  return {};
}

Value add_texts(Heap& heap, const TextData& a, const TextData& b) {
  heap.check_text(a.bytes.size() + b.bytes.size());
  if (a.markup == b.markup) return heap.text(a.bytes + b.bytes, a.markup);
  // Joining safe text with any other escapes the other.
  return heap.text((a.markup ? a.bytes : escape_html(a.bytes)) + (b.markup ? b.bytes : escape_html(b.bytes)),
                   true);
}

// The count of `sequence * count`, checked against what the whole would take.
std::size_t repeat_count(Heap& heap, std::size_t size, std::int64_t count, std::size_t limit) {
  if (count <= 0 || size == 0) return 0;
  if (static_cast<std::uint64_t>(count) > limit / size)
    heap.check_text(std::numeric_limits<std::size_t>::max());
  return static_cast<std::size_t>(count);
}

Value repeat(Heap& heap, const Value& sequence, std::int64_t count) {
  if (sequence.is_text()) {
    const std::string& bytes = sequence.str();
    const std::size_t times = repeat_count(heap, bytes.size(), count, heap.limits().text_bytes);
    std::string out;
    out.reserve(bytes.size() * times);
    for (std::size_t i = 0; i < times; ++i) out += bytes;
    return heap.text(std::move(out), sequence.text()->markup);
  }
  const List& list = *sequence.list();
  const std::size_t times =
      repeat_count(heap, list.items.size(), count, heap.limits().text_bytes / sizeof(Value));
  heap.step(list.items.size() * times);
  std::vector<Value> items;
  items.reserve(list.items.size() * times);
  for (std::size_t i = 0; i < times; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  return make_list(heap, std::move(items), list.kind);
}

bool is_repeatable(const Value& value) {
  const List* list = value.list();
  return value.is_text() ||
         (list != nullptr && (list->kind == ListKind::kList || list->kind == ListKind::kTuple));
}

}  // namespace

Value arithmetic(Heap& heap, Operator op, const Value& a, const Value& b) {
  if (a.is_text() && op == Operator::kMod) return make_text(heap, format_percent(heap, a.str(), b));
  require_defined(a);
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.integral(), b.integral());
  if (a.is_number() && b.is_number()) return real_arithmetic(op, a.real_number(), b.real_number());
  if (op == Operator::kAdd && a.is_text() && b.is_text()) return add_texts(heap, *a.text(), *b.text());
  if (op == Operator::kAdd && a.list() != nullptr && b.list() != nullptr && is_repeatable(a) &&
      a.list()->kind == b.list()->kind) {
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    heap.step(items.size());
    return make_list(heap, std::move(items), a.list()->kind);
  }
  if (op == Operator::kMul && is_repeatable(a) && b.is_integral()) return repeat(heap, a, b.integral());
  if (op == Operator::kMul && is_repeatable(b) && a.is_integral()) return repeat(heap, b, a.integral());
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_integral()) return integer_arithmetic(Operator::kSub, 0, value.integral());
  if (const double* real = value.as<double>()) return Value::real(-*real);
  fail(std::string("bad operand type for unary -: '") + type_name(value) + "'");
}

Value positive(const Value& value) {
  require_defined(value);
  if (value.is_integral()) return Value::integer(value.integral());
  if (value.as<double>() != nullptr) return value;
  fail(std::string("bad operand type for unary +: '") + type_name(value) + "'");
}

}  // namespace shoal::tokenizer::jinja
