#include "tokenizer/jinja_sequence.h"

#include <algorithm>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_operators.h"

namespace shoal::tokenizer::jinja {

std::vector<Value> sorted_items(Heap& heap, std::vector<Keyed> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    heap.step();
    return reverse ? less(heap, b.key, a.key) : less(heap, a.key, b.key);
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& element : keyed) items.push_back(std::move(element.item));
  return items;
}

Value items_of(Heap& heap, const Dict& dict, ListKind kind) {
  std::vector<Value> pairs;
  pairs.reserve(dict.entries.size());
  for (const Dict::Entry& entry : dict.entries) {
    heap.step();
    pairs.push_back(make_list(heap, {entry.key, entry.value}, ListKind::kTuple));
  }
  return make_list(heap, std::move(pairs), kind);
}

void merge_into(Heap& heap, Dict& target, const Value& other) {
  if (Dict* dict = other.dict()) {
    if (dict == &target) return;
    for (const Dict::Entry& entry : dict->entries) {
      heap.step();
      target.set(heap, entry.key, entry.value);
    }
    return;
  }
  for (const Value& pair : collect(heap, other)) {
    const std::vector<Value> parts = collect(heap, pair);
    if (parts.size() != 2)
      fail("a dict is updated with pairs, this element has " + std::to_string(parts.size()));
    target.set(heap, parts[0], parts[1]);
  }
}

}  // namespace shoal::tokenizer::jinja
