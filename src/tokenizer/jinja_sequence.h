// What several methods, filters and globals do with lists and dicts: sort, pair up, merge.
//
// Thread-safety: as the values.

#pragma once

#include <string>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

// An element and what it is ordered by.
struct Keyed {
  Value key;
  Value item;
};

// The items in the order of their keys; equal keys keep their order, also when reversed.
std::vector<Value> sorted_items(Heap& heap, std::vector<Keyed> keyed, bool reverse);

// The (key, value) tuples of a dict.
Value items_of(Heap& heap, const Dict& dict, ListKind kind);

// dict.update(other): other is a dict or an iterable of pairs.
void merge_into(Heap& heap, Dict& target, const Value& other);

}  // namespace shoal::tokenizer::jinja
