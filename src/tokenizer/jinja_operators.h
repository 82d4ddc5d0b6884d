// What Python's operators do to template values: truth, comparison, arithmetic, membership, subscripts,
// iteration.
//
// Thread-safety: as the values.
// Invariants: a combination Python refuses throws a Failure with Python's sentence; an undefined operand
//   throws its own, except where Jinja allows it (truth, equality, iteration, printing).

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

enum class Operator { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

bool truthy(const Value& value);
bool equals(Heap& heap, const Value& a, const Value& b, int depth = 0);
// Python's a < b.
bool less(Heap& heap, const Value& a, const Value& b, const char* symbol = "<", int depth = 0);
bool compare(Heap& heap, Comparison comparison, const Value& a, const Value& b);
bool contains(Heap& heap, const Value& container, const Value& item);

Value arithmetic(Heap& heap, Operator op, const Value& a, const Value& b);
Value negate(const Value& value);
Value positive(const Value& value);

// len(): fails for what has none.
std::int64_t length(const Value& value);

// container[key]: undefined where Python raises, after a look at the attributes.
Value get_item(Heap& heap, const Value& container, const Value& key);
// object.name: attributes and methods first, then keys.
Value get_attribute(Heap& heap, const Value& object, const Text& name);
Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step);

// A pass over whatever can be iterated. The container may change under it, as in Python.
class Iterator {
 public:
  Iterator(Heap& heap, const Value& value);
  // False at the end.
  bool next(Value& out);
  // len() of what is iterated; nullopt for a generator.
  std::optional<std::int64_t> size() const;

 private:
  Heap* heap_;
  Value value_;
  std::size_t at_ = 0;
};

// All elements; charges a step for each.
std::vector<Value> collect(Heap& heap, const Value& value);
bool is_iterable(const Value& value);

}  // namespace shoal::tokenizer::jinja
