#include "tokenizer/jinja_operators.h"

#include <algorithm>
#include <string>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_unicode.h"

namespace shoal::tokenizer::jinja {
namespace {

bool is_list_kind(const List& list) { return list.kind == ListKind::kList; }
bool is_tuple_kind(const List& list) {
  return list.kind == ListKind::kTuple || list.kind == ListKind::kGroup;
}

bool texts_equal(Heap& heap, const TextData& a, const TextData& b) {
  if (&a == &b) return true;
  if (a.bytes.size() != b.bytes.size()) return false;
  heap.step(a.bytes.size() / 256);
  return a.bytes == b.bytes;
}

bool lists_equal(Heap& heap, const List& a, const List& b, int depth) {
  if (&a == &b) return true;
  const bool comparable = (is_tuple_kind(a) && is_tuple_kind(b)) || a.kind == b.kind;
  if (!comparable || a.kind == ListKind::kGenerator || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equals(heap, a.items[i], b.items[i], depth + 1)) return false;
  }
  return true;
}

bool dicts_equal(Heap& heap, const Dict& a, Dict& b, int depth) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const Dict::Entry& entry : a.entries) {
    const Value* other = b.find(heap, entry.key);
    if (other == nullptr || !equals(heap, entry.value, *other, depth + 1)) return false;
  }
  return true;
}

bool lists_less(Heap& heap, const List& a, const List& b, const char* symbol, int depth) {
  const std::size_t common = std::min(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (!equals(heap, a.items[i], b.items[i], depth + 1))
      return less(heap, a.items[i], b.items[i], symbol, depth + 1);
  }
  return a.items.size() < b.items.size();
}

[[noreturn]] void fail_membership(const Value& container) {
  fail(std::string("argument of type '") + type_name(container) + "' is not iterable");
}

}  // namespace

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_integral()) return value.integral() != 0;
  if (const double* real = value.as<double>()) return *real != 0;
  if (value.is_text()) return !value.str().empty();
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  if (const List* list = value.list()) return list->kind == ListKind::kGenerator || !list->items.empty();
  return true;
}

bool equals(Heap& heap, const Value& a, const Value& b, int depth) {
  if (depth > kMaxNesting) fail("values are nested too deep to be compared");
  heap.step();
  if (a.is_text()) return b.is_text() && texts_equal(heap, *a.text(), *b.text());
  if (a.is_integral() && b.is_integral()) return a.integral() == b.integral();
  if (a.is_number()) return b.is_number() && a.real_number() == b.real_number();
  if (a.is_none()) return b.is_none();
  if (a.is_undefined()) return b.is_undefined();
  if (const List* list = a.list()) return b.list() != nullptr && lists_equal(heap, *list, *b.list(), depth);
  if (const Dict* dict = a.dict()) return b.dict() != nullptr && dicts_equal(heap, *dict, *b.dict(), depth);
  if (a.space() != nullptr) return a.space() == b.space();
  return a.callable() == b.callable();
}

bool less(Heap& heap, const Value& a, const Value& b, const char* symbol, int depth) {
  if (depth > kMaxNesting) fail("values are nested too deep to be compared");
  require_defined(a);
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return a.integral() < b.integral();
  if (a.is_number() && b.is_number()) return a.real_number() < b.real_number();
  // Bytes of UTF-8 order as their code points do.
  if (a.is_text() && b.is_text()) {
    heap.step(std::min(a.str().size(), b.str().size()) / 256);
    return a.str() < b.str();
  }
  const List* left = a.list();
  const List* right = b.list();
  if (left != nullptr && right != nullptr &&
      ((is_list_kind(*left) && is_list_kind(*right)) || (is_tuple_kind(*left) && is_tuple_kind(*right)))) {
    return lists_less(heap, *left, *right, symbol, depth);
  }
  fail(std::string("'") + symbol + "' not supported between instances of '" + type_name(a) + "' and '" +
       type_name(b) + "'");
}

bool compare(Heap& heap, Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      return equals(heap, a, b);
    case Comparison::kNotEqual:
      return !equals(heap, a, b);
    case Comparison::kLess:
      return less(heap, a, b, "<");
    case Comparison::kGreater:
      return less(heap, b, a, ">");
    // Not !less(b, a): with a NaN both are false.
    case Comparison::kLessEqual:
      return less(heap, a, b, "<=") || equals(heap, a, b);
    case Comparison::kGreaterEqual:
      return less(heap, b, a, ">=") || equals(heap, a, b);
    case Comparison::kIn:
      return contains(heap, b, a);
    case Comparison::kNotIn:
      return !contains(heap, b, a);
  }
  return false;
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) {
      fail(std::string("'in <string>' requires string as left operand, not ") + type_name(item));
    }
    heap.step(container.str().size() / 64);
    return find_text(container.str(), item.str(), 0) != std::string::npos;
  }
  if (Dict* dict = container.dict()) return dict->find(heap, item) != nullptr;
  if (container.list() != nullptr) {
    Iterator iterator(heap, container);
    Value element;
    while (iterator.next(element)) {
      heap.step();
      if (equals(heap, element, item)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  fail_membership(container);
}

std::int64_t length(const Value& value) {
  if (value.is_text()) {
    const TextData& text = *value.text();
    return static_cast<std::int64_t>(text.chars);
  }
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->entries.size());
  const List* list = value.list();
  if (list != nullptr && list->kind != ListKind::kGenerator)
    return static_cast<std::int64_t>(list->items.size());
  if (value.is_undefined()) return 0;
  fail(std::string("object of type '") + type_name(value) + "' has no len()");
}

Iterator::Iterator(Heap& heap, const Value& value) : heap_(&heap), value_(value) {
  if (!is_iterable(value)) fail(std::string("'") + type_name(value) + "' object is not iterable");
}

bool Iterator::next(Value& out) {
  if (const List* list = value_.list()) {
    std::size_t& at = list->kind == ListKind::kGenerator ? value_.list()->consumed : at_;
    if (at >= list->items.size()) return false;
    out = list->items[at++];
    return true;
  }
  if (const Dict* dict = value_.dict()) {
    if (at_ >= dict->entries.size()) return false;
    out = dict->entries[at_++].key;
    return true;
  }
  if (value_.is_text()) {
    const std::string& bytes = value_.str();
    if (at_ >= bytes.size()) return false;
    const std::size_t end = at_ + char_offset(std::string_view(bytes).substr(at_), 1);
    out = make_text(*heap_, bytes.substr(at_, end - at_));
    at_ = end;
    return true;
  }
  return false;  // undefined: empty
}

std::optional<std::int64_t> Iterator::size() const {
  const List* list = value_.list();
  if (list != nullptr && list->kind == ListKind::kGenerator) return std::nullopt;
  return length(value_);
}

bool is_iterable(const Value& value) {
  return value.list() != nullptr || value.dict() != nullptr || value.is_text() || value.is_undefined();
}

std::vector<Value> collect(Heap& heap, const Value& value) {
  std::vector<Value> items;
  Iterator iterator(heap, value);
  Value item;
  while (iterator.next(item)) {
    heap.step(2);  // the copy is not counted as live memory, so its size is bounded here
    items.push_back(item);
  }
  return items;
}

}  // namespace shoal::tokenizer::jinja
