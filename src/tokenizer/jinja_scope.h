// The variables a piece of template sees: its own, then those of what it stands in.
//
// Thread-safety: none; one rendering.
// Ownership: points to the scope it stands in, which outlives it.
// Invariants: a set changes this scope alone; what a loop's body sets is gone with the iteration.

#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

class Scope : public Object {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}
  // The outermost scope, with room for every name of the template.
  explicit Scope(std::size_t names) : table_(names) {}

  const Value* find(NameId name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      if (const Value* value = scope->find_own(name)) return value;
    }
    return nullptr;
  }

  void set(NameId name, Value value) {
    if (parent_ == nullptr) {
      table_[name] = std::move(value);
      return;
    }
    for (auto& [id, held] : own_) {
      if (id != name) continue;
      held = std::move(value);
      return;
    }
    own_.emplace_back(name, std::move(value));
  }

  void clear() { own_.clear(); }

 private:
  const Value* find_own(NameId name) const {
    if (parent_ == nullptr) return table_[name] ? &*table_[name] : nullptr;
    for (const auto& [id, value] : own_) {
      if (id == name) return &value;
    }
    return nullptr;
  }

  Scope* parent_ = nullptr;
  std::vector<std::pair<NameId, Value>> own_;  // few: a search is faster than a map
  std::vector<std::optional<Value>> table_;    // of the outermost scope, by name
};

}  // namespace shoal::tokenizer::jinja
