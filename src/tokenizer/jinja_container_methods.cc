// Methods of lists, tuples and dicts.
//
// Mutating ones are here on purpose: templates in use append to lists of their own, though a sandbox that
// forbids it is what their authors test with.

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_sequence.h"

namespace shoal::tokenizer::jinja {
namespace {

void push(Heap& heap, List& list, Value value) {
  heap.grow(sizeof(Value));
  list.items.push_back(std::move(value));
}

// An index as list.insert and list.pop take it, from the end where negative.
std::size_t clamp_index(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(index, 0, count));
}

Value list_append(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "append", {"object"});
  push(heap, *self.list(), parameters.at(0));
  return None{};
}

Value list_extend(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "extend", {"iterable"});
  for (Value& item : collect(heap, parameters.at(0))) push(heap, *self.list(), std::move(item));
  return None{};
}

Value list_insert(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "insert", {"index", "object"});
  std::vector<Value>& items = self.list()->items;
  heap.grow(sizeof(Value));
  heap.step(items.size() / 8);
  const std::size_t at = clamp_index(parameters.integer(0), items.size());
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), parameters.at(1));
  return None{};
}

Value list_pop(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "pop", {"index"});
  std::vector<Value>& items = self.list()->items;
  if (items.empty()) fail("pop from empty list");
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t index = parameters.integer_or(0, -1);
  if (index < 0) index += size;
  if (index < 0 || index >= size) fail("pop index out of range");
  heap.step(items.size() / 8);
  Value out = items[static_cast<std::size_t>(index)];
  items.erase(items.begin() + index);
  return out;
}

Value list_remove(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "remove", {"value"});
  std::vector<Value>& items = self.list()->items;
  heap.step(items.size());
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Value& item) { return equals(heap, item, parameters.at(0)); });
  if (found == items.end()) fail("list.remove(x): x not in list");
  items.erase(found);
  return None{};
}

Value list_index(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "index", {"value", "start", "stop"});
  const std::vector<Value>& items = self.list()->items;
  const std::size_t stop = clamp_index(parameters.integer_or(2, self.list()->items.size()), items.size());
  for (std::size_t i = clamp_index(parameters.integer_or(1, 0), items.size()); i < stop; ++i) {
    heap.step();
    if (equals(heap, items[i], parameters.at(0))) return Value::integer(static_cast<std::int64_t>(i));
  }
  fail(repr_of(heap, parameters.at(0)) + " is not in list");
}

Value list_count(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "count", {"value"});
  std::int64_t count = 0;
  for (const Value& item : self.list()->items) {
    heap.step();
    count += equals(heap, item, parameters.at(0));
  }
  return Value::integer(count);
}

Value list_reverse(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "reverse", {});
  heap.step(self.list()->items.size());
  std::reverse(self.list()->items.begin(), self.list()->items.end());
  return None{};
}

Value list_sort(Heap& heap, const Value& self, Arguments& arguments) {
  Value reverse = Value::boolean(false);
  arguments.take("reverse", reverse);
  const Parameters parameters(arguments, "sort", {});
  std::vector<Keyed> keyed;
  for (const Value& item : self.list()->items) keyed.push_back({item, item});
  self.list()->items = sorted_items(heap, std::move(keyed), truthy(reverse));
  return None{};
}

Value list_clear(Heap&, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "clear", {});
  self.list()->items.clear();
  return None{};
}

Value list_copy(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "copy", {});
  heap.step(self.list()->items.size());
  return make_list(heap, self.list()->items);
}

Value dict_get(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "get", {"key", "default"});
  const Value* found = self.dict()->find(heap, parameters.at(0));
  return found != nullptr ? *found : parameters.at_or(1, None{});
}

Value dict_items(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "items", {});
  return items_of(heap, *self.dict(), ListKind::kItems);
}

Value dict_keys(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "keys", {});
  heap.step(self.dict()->entries.size());
  std::vector<Value> keys;
  for (const Dict::Entry& entry : self.dict()->entries) keys.push_back(entry.key);
  return make_list(heap, std::move(keys), ListKind::kKeys);
}

Value dict_values(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "values", {});
  heap.step(self.dict()->entries.size());
  std::vector<Value> values;
  for (const Dict::Entry& entry : self.dict()->entries) values.push_back(entry.value);
  return make_list(heap, std::move(values), ListKind::kValues);
}

Value dict_update(Heap& heap, const Value& self, Arguments& arguments) {
  const std::vector<std::pair<Text, Value>> named = std::move(arguments.named);
  arguments.named.clear();
  const Parameters parameters(arguments, "update", {"other"});
  if (parameters.has(0)) merge_into(heap, *self.dict(), parameters.at(0));
  for (const auto& [name, value] : named) self.dict()->set(heap, name, value);
  return None{};
}

Value dict_pop(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "pop", {"key", "default"});
  const Value key = parameters.at(0);
  if (const Value* found = self.dict()->find(heap, key)) {
    Value out = *found;
    heap.step(self.dict()->entries.size());
    self.dict()->erase(heap, key);
    return out;
  }
  if (!parameters.has(1)) fail("no key " + repr_of(heap, key) + " to pop");
  return parameters.at(1);
}

Value dict_setdefault(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "setdefault", {"key", "default"});
  if (const Value* found = self.dict()->find(heap, parameters.at(0))) return *found;
  Value value = parameters.at_or(1, None{});
  self.dict()->set(heap, parameters.at(0), value);
  return value;
}

Value dict_copy(Heap& heap, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "copy", {});
  Dict* copy = heap.make<Dict>();
  merge_into(heap, *copy, self);
  return copy;
}

Value dict_clear(Heap&, const Value& self, Arguments& arguments) {
  const Parameters parameters(arguments, "clear", {});
  self.dict()->clear();
  return None{};
}

using Table = std::unordered_map<std::string_view, MethodFunction>;

MethodFunction look_up(const Table& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

MethodFunction find_list_method(std::string_view name) {
  static const Table table = {
      {"append", list_append}, {"extend", list_extend}, {"insert", list_insert}, {"pop", list_pop},
      {"remove", list_remove}, {"index", list_index},   {"count", list_count},   {"reverse", list_reverse},
      {"sort", list_sort},     {"clear", list_clear},   {"copy", list_copy},
  };
  return look_up(table, name);
}

MethodFunction find_tuple_method(std::string_view name) {
  static const Table table = {{"index", list_index}, {"count", list_count}};
  return look_up(table, name);
}

MethodFunction find_dict_method(std::string_view name) {
  static const Table table = {
      {"get", dict_get},
      {"items", dict_items},
      {"keys", dict_keys},
      {"values", dict_values},
      {"update", dict_update},
      {"pop", dict_pop},
      {"setdefault", dict_setdefault},
      {"copy", dict_copy},
      {"clear", dict_clear},
  };
  return look_up(table, name);
}

}  // namespace shoal::tokenizer::jinja
