#include "tokenizer/jinja_value.h"

#include <cmath>
#include <functional>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"

namespace shoal::tokenizer::jinja {
namespace {

// Spreads neighbours and multiples, which a plain hash of integers would crowd into few buckets.
std::size_t hash_integer(std::int64_t value) {
  std::uint64_t bits = static_cast<std::uint64_t>(value) * 0x9E3779B97F4A7C15;
  bits ^= bits >> 32;
  return bits;
}

}  // namespace

std::size_t Dict::position(Heap& heap, std::string_view key) const {
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].key.is_text() || entries[i].key.str().size() != key.size()) continue;
      heap.step(key.size() / 256);
      if (entries[i].key.str() == key) return i;
    }
    return kAbsent;
  }
  heap.step(key.size() / 64);
  const auto [first, last] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = first; it != last; ++it) {
    const Value& candidate = entries[it->second].key;
    if (candidate.is_text() && candidate.str() == key) return it->second;
  }
  return kAbsent;
}

std::size_t Dict::position(Heap& heap, const Value& key) const {
  if (key.is_text()) return position(heap, std::string_view(key.str()));
  if (!is_hashable(heap, key)) fail(std::string("unhashable type: '") + type_name(key) + "'");
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (equals(heap, entries[i].key, key)) return i;
    }
    return kAbsent;
  }
  const auto [first, last] = index_.equal_range(hash_of(heap, key));
  for (auto it = first; it != last; ++it) {
    if (equals(heap, entries[it->second].key, key)) return it->second;
  }
  return kAbsent;
}

Value* Dict::find(Heap& heap, const Value& key) {
  const std::size_t at = position(heap, key);
  return at == kAbsent ? nullptr : &entries[at].value;
}

Value* Dict::find(Heap& heap, std::string_view key) {
  const std::size_t at = position(heap, key);
  return at == kAbsent ? nullptr : &entries[at].value;
}

void Dict::set(Heap& heap, const Value& key, Value value) {
  const std::size_t at = position(heap, key);
  if (at != kAbsent) {
    entries[at].value = std::move(value);
    return;
  }
  heap.grow(sizeof(Entry));
  entries.push_back({key, std::move(value)});
  if (!index_.empty()) {
    index_.emplace(hash_of(heap, key), entries.size() - 1);
  } else if (entries.size() > kIndexFrom) {
    rebuild_index(heap);
  }
}

bool Dict::erase(Heap& heap, const Value& key) {
  const std::size_t at = position(heap, key);
  if (at == kAbsent) return false;
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at));
  rebuild_index(heap);
  return true;
}

void Dict::clear() {
  entries.clear();
  index_.clear();
}

void Dict::rebuild_index(Heap& heap) {
  index_.clear();
  if (entries.size() <= kIndexFrom) return;
  heap.step(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(hash_of(heap, entries[i].key), i);
}

bool Arguments::take(std::string_view name, Value& out) {
  for (auto it = named.begin(); it != named.end(); ++it) {
    if (it->first->bytes != name) continue;
    out = std::move(it->second);
    named.erase(it);
    return true;
  }
  return false;
}

bool Callable::attribute(Heap&, std::string_view, Value&) { return false; }

Value make_list(Heap& heap, std::vector<Value> items, ListKind kind) {
  List* list = heap.make<List>(kind);
  heap.grow(items.size() * sizeof(Value));
  list->items = std::move(items);
  return list;
}

Value make_text(Heap& heap, std::string bytes) { return heap.text(std::move(bytes)); }

const char* type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.as<bool>() != nullptr) return "bool";
  if (value.as<std::int64_t>() != nullptr) return "int";
  if (value.as<double>() != nullptr) return "float";
  if (value.is_text()) return value.text()->markup ? "Markup" : "str";
  if (value.dict() != nullptr) return "dict";
  if (value.space() != nullptr) return "Namespace";
  if (value.callable() != nullptr) return "function";
  switch (value.list()->kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kKeys:
      return "dict_keys";
    case ListKind::kValues:
      return "dict_values";
    case ListKind::kItems:
      return "dict_items";
    case ListKind::kGroup:
      return "_GroupTuple";
    case ListKind::kGenerator:
      return "generator";
  }
  return "object";
}

bool is_hashable(Heap& heap, const Value& value, int depth) {
  if (depth > kMaxNesting) fail("a key is nested too deep");
  if (value.dict() != nullptr) return false;
  const List* list = value.list();
  if (list == nullptr) return true;
  if (list->kind != ListKind::kTuple) return list->kind != ListKind::kList;
  for (const Value& item : list->items) {
    heap.step();
    if (!is_hashable(heap, item, depth + 1)) return false;
  }
  return true;
}

std::size_t hash_of(Heap& heap, const Value& key) {
  if (key.is_text()) {
    heap.step(key.str().size() / 64);
    return std::hash<std::string_view>{}(key.str());
  }
  if (key.is_integral()) return hash_integer(key.integral());
  if (const double* real = key.as<double>()) {
    // Equal numbers must meet: a float without a fraction hashes as the integer it equals.
    if (std::floor(*real) == *real && std::fabs(*real) < 9e18)
      return hash_integer(static_cast<std::int64_t>(*real));
    return std::hash<double>{}(*real);
  }
  if (const List* list = key.list(); list != nullptr && list->kind == ListKind::kTuple) {
    std::size_t hash = list->items.size();
    for (const Value& item : list->items) {
      heap.step();
      hash = hash * 1'000'003 ^ hash_of(heap, item);
    }
    return hash;
  }
  if (key.list() != nullptr) return std::hash<const void*>{}(key.list());
  if (key.space() != nullptr) return std::hash<const void*>{}(key.space());
  return std::hash<const void*>{}(key.callable());
}

void fail_undefined(const Undefined& undefined) {
  if (undefined.name == nullptr) fail("a value is undefined");
  if (undefined.owner == nullptr) fail(repr_text(undefined.name->bytes) + " is undefined");
  if (undefined.owner == Undefined::kSentence) fail(undefined.name->bytes);
  fail(std::string("'") + undefined.owner + "' has no attribute " + repr_text(undefined.name->bytes));
}

}  // namespace shoal::tokenizer::jinja
