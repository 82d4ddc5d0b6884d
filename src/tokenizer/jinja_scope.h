// The variables a piece of template sees: its own, then those of what it stands in.
//
// Thread-safety: none; one rendering.
// Ownership: points to the scope it stands in, which outlives it.
// Invariants: a set changes this scope alone; what a loop's body sets is gone with the iteration.

#pragma once

#include <optional>
#include <unordered_map>
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

  // Null where neither this scope nor one around it has the name.
  Value* find(NameId name) {
    for (Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      if (Value* value = scope->find_own(name)) return value;
    }
    return nullptr;
  }

  void set(NameId name, Value value) {
    if (parent_ == nullptr) {
      table_[name] = std::move(value);
      return;
    }
    if (Value* held = find_own(name)) {
      *held = std::move(value);
      return;
    }
    own_.emplace_back(name, std::move(value));
    if (own_.size() > kIndexFrom) index_own();
  }

  void clear() {
    own_.clear();
    index_.clear();
  }

 private:
  Value* find_own(NameId name) {
    if (parent_ == nullptr) return table_[name] ? &*table_[name] : nullptr;
    if (!index_.empty()) {
      const auto found = index_.find(name);
      return found == index_.end() ? nullptr : &own_[found->second].second;
    }
    for (auto& [id, value] : own_) {
      if (id == name) return &value;
    }
    return nullptr;
  }

  void index_own() {
    for (std::size_t i = index_.size(); i < own_.size(); ++i) index_.emplace(own_[i].first, i);
  }

  static constexpr std::size_t kIndexFrom = 16;

  Scope* parent_ = nullptr;
  std::vector<std::pair<NameId, Value>> own_;      // mostly few: a search is faster than a map
  std::unordered_map<NameId, std::size_t> index_;  // into own_, past kIndexFrom
  std::vector<std::optional<Value>> table_;        // of the outermost scope, by name
};

}  // namespace shoal::tokenizer::jinja
