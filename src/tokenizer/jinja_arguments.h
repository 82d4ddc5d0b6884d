// Binds the arguments of a call to parameter names, as Python does, and reads them as what the callee needs.
//
// Thread-safety: none; lives as long as the call.
// Ownership: refers to the Arguments it was made from.
// Invariants: too many, unknown and doubled arguments fail when it is made; a missing or ill-typed one fails
//   when it is read.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

class Parameters {
 public:
  // At most six names.
  Parameters(const Arguments& arguments, const char* function, std::initializer_list<const char*> names);

  // Given, and not none where none means "the default".
  bool has(std::size_t index) const { return bound_[index] != nullptr; }
  bool has_value(std::size_t index) const { return has(index) && !bound_[index]->is_none(); }

  const Value& at(std::size_t index) const;
  Value at_or(std::size_t index, Value fallback) const { return has(index) ? *bound_[index] : fallback; }
  std::int64_t integer(std::size_t index) const;
  std::int64_t integer_or(std::size_t index, std::int64_t fallback) const {
    return has_value(index) ? integer(index) : fallback;
  }
  // Python's truth of it.
  bool flag_or(std::size_t index, bool fallback) const;
  const std::string& text(std::size_t index) const;

 private:
  [[noreturn]] void fail_type(std::size_t index, const char* expected) const;

  const char* function_;
  std::array<const char*, 6> names_{};
  std::array<const Value*, 6> bound_{};
};

}  // namespace shoal::tokenizer::jinja
