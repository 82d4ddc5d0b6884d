#include "tokenizer/jinja_arguments.h"

#include <algorithm>
#include <cassert>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_operators.h"

namespace shoal::tokenizer::jinja {

Parameters::Parameters(const Arguments& arguments, const char* function,
                       std::initializer_list<const char*> names)
    : function_(function) {
  assert(names.size() <= names_.size());
  std::copy(names.begin(), names.end(), names_.begin());
  if (arguments.positional.size() > names.size()) {
    fail(std::string(function) + " takes at most " + std::to_string(names.size()) + " argument" +
         (names.size() == 1 ? "" : "s") + " (" + std::to_string(arguments.positional.size()) + " given)");
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bound_[i] = &arguments.positional[i];
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first->bytes;
    const auto found = std::find_if(names.begin(), names.end(), [&](const char* n) { return name == n; });
    if (found == names.end()) {
      fail(std::string(function) + " got an unexpected keyword argument '" + name + "'");
    }
    const Value*& slot = bound_[static_cast<std::size_t>(found - names.begin())];
    if (slot != nullptr) fail(std::string(function) + " got multiple values for argument '" + *found + "'");
    slot = &argument.second;
  }
}

const Value& Parameters::at(std::size_t index) const {
  if (!has(index)) fail(std::string(function_) + " missing required argument: '" + names_[index] + "'");
  return *bound_[index];
}

std::int64_t Parameters::integer(std::size_t index) const {
  const Value& value = at(index);
  require_defined(value);
  if (!value.is_integral()) fail_type(index, "an integer");
  return value.integral();
}

bool Parameters::flag_or(std::size_t index, bool fallback) const {
  return has(index) ? truthy(*bound_[index]) : fallback;
}

const std::string& Parameters::text(std::size_t index) const {
  const Value& value = at(index);
  require_defined(value);
  if (!value.is_text()) fail_type(index, "a string");
  return value.str();
}

void Parameters::fail_type(std::size_t index, const char* expected) const {
  fail(std::string(function_) + " argument '" + names_[index] + "' must be " + expected + ", not " +
       type_name(*bound_[index]));
}

}  // namespace shoal::tokenizer::jinja
