// Filters over sequences: order, ends, groups, sums.

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_sequence.h"

namespace shoal::tokenizer::jinja {
namespace {

Value missing(Heap& heap, const char* sentence) {
  return Undefined{heap.text(sentence), Undefined::kSentence};
}

Value count(Heap&, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "length", {});
  return Value::integer(length(value));
}

Value list(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "list", {});
  return make_list(heap, collect(heap, value));
}

Value first(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "first", {});
  Iterator iterator(heap, value);
  Value item;
  return iterator.next(item) ? item : missing(heap, "No first item, sequence was empty.");
}

Value last(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "last", {});
  if (value.is_undefined()) return missing(heap, "No last item, sequence was empty.");
  const std::int64_t size = length(value);
  if (size == 0) return missing(heap, "No last item, sequence was empty.");
  if (Dict* dict = value.dict()) return dict->entries.back().key;
  if (const List* items = value.list()) return items->items.back();
  return get_item(heap, value, Value::integer(-1));
}

Value join(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "join", {"d", "attribute"});
  const std::string separator = parameters.has(0) ? str_of(heap, parameters.at(0)) : std::string();
  Output out(heap);
  Iterator iterator(heap, value);
  Value item;
  for (bool more = false; iterator.next(item); more = true) {
    heap.step();
    if (more) out.append(separator);
    if (parameters.has_value(1)) item = attribute_path(heap, item, parameters.at(1));
    append_str(heap, item, out);
  }
  return make_text(heap, out.take());
}

Value reverse(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "reverse", {});
  if (value.is_text()) return slice(heap, value, None{}, None{}, Value::integer(-1));
  std::vector<Value> items = collect(heap, value);
  std::reverse(items.begin(), items.end());
  return make_list(heap, std::move(items), ListKind::kGenerator);
}

// The keys that `attribute` names, one for each part between commas, as a list: items that lack the attribute
// are then equal to each other, where comparing two undefined values would fail.
Value sort_key(Heap& heap, const Value& item, const Value& attribute, bool case_sensitive) {
  const auto key_of = [&](const Value& path) {
    const Value key = attribute_path(heap, item, path);
    return case_sensitive ? key : ignore_case(heap, key);
  };
  if (!attribute.is_text()) return make_list(heap, {key_of(attribute)});
  std::vector<Value> keys;
  std::string_view rest = attribute.str();
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    keys.push_back(key_of(make_text(heap, std::string(rest.substr(0, comma)))));
    if (more) rest.remove_prefix(comma + 1);
  }
  return make_list(heap, std::move(keys));
}

Value sort(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = parameters.flag_or(1, false);
  std::vector<Keyed> keyed;
  for (const Value& item : collect(heap, value)) {
    keyed.push_back({sort_key(heap, item, parameters.at_or(2, None{}), case_sensitive), item});
  }
  return make_list(heap, sorted_items(heap, std::move(keyed), parameters.flag_or(0, false)));
}

Value dict_sort(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = parameters.has(1) ? parameters.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  require_defined(value);
  if (value.dict() == nullptr) fail(std::string("dictsort takes a dict, not ") + type_name(value));
  const bool case_sensitive = parameters.flag_or(0, false);
  const Value pairs = items_of(heap, *value.dict(), ListKind::kList);
  std::vector<Keyed> keyed;
  for (const Value& pair : pairs.list()->items) {
    const Value& key = pair.list()->items[by == "key" ? 0 : 1];
    keyed.push_back({case_sensitive ? key : ignore_case(heap, key), pair});
  }
  return make_list(heap, sorted_items(heap, std::move(keyed), parameters.flag_or(2, false)));
}

Value items(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "items", {});
  if (value.is_undefined()) return make_list(heap, {}, ListKind::kGenerator);
  if (value.dict() == nullptr) fail("Can only get item pairs from a mapping.");
  return items_of(heap, *value.dict(), ListKind::kGenerator);
}

Value unique(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "unique", {"case_sensitive", "attribute"});
  const bool case_sensitive = parameters.flag_or(0, false);
  Dict* seen = heap.make<Dict>();
  std::vector<Value> kept;
  for (const Value& item : collect(heap, value)) {
    Value key = attribute_path(heap, item, parameters.at_or(1, None{}));
    if (!case_sensitive) key = ignore_case(heap, key);
    if (seen->find(heap, key) != nullptr) continue;
    seen->set(heap, key, None{});
    kept.push_back(item);
  }
  return make_list(heap, std::move(kept), ListKind::kGenerator);
}

template <bool kMax>
Value extreme(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, kMax ? "max" : "min", {"case_sensitive", "attribute"});
  const bool case_sensitive = parameters.flag_or(0, false);
  Value best;
  Value best_key;
  bool any = false;
  for (const Value& item : collect(heap, value)) {
    Value key = attribute_path(heap, item, parameters.at_or(1, None{}));
    if (!case_sensitive) key = ignore_case(heap, key);
    if (!any || (kMax ? less(heap, best_key, key) : less(heap, key, best_key))) {
      best = item;
      best_key = key;
    }
    any = true;
  }
  return any ? best : missing(heap, "No aggregated item, sequence was empty.");
}

Value sum(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "sum", {"attribute", "start"});
  Value total = parameters.at_or(1, Value::integer(0));
  if (total.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : collect(heap, value)) {
    total = arithmetic(heap, Operator::kAdd, total, attribute_path(heap, item, parameters.at_or(0, None{})));
  }
  return total;
}

// A count of parts or of items a part, which decides how many lists are made.
std::size_t part_size(const Parameters& parameters) {
  const std::int64_t size = parameters.integer(0);
  if (size <= 0 || size > 1'000'000) fail("the size of a batch or slice must be between 1 and 1,000,000");
  return static_cast<std::size_t>(size);
}

Value batch(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "batch", {"linecount", "fill_with"});
  const std::size_t size = part_size(parameters);
  const std::vector<Value> all = collect(heap, value);
  std::vector<Value> batches;
  for (std::size_t at = 0; at < all.size(); at += size) {
    const std::size_t end = std::min(at + size, all.size());
    std::vector<Value> part(all.begin() + static_cast<std::ptrdiff_t>(at),
                            all.begin() + static_cast<std::ptrdiff_t>(end));
    if (parameters.has_value(1)) part.resize(size, parameters.at(1));
    batches.push_back(make_list(heap, std::move(part)));
  }
  return make_list(heap, std::move(batches), ListKind::kGenerator);
}

Value slices(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "slice", {"slices", "fill_with"});
  const std::size_t count = part_size(parameters);
  const std::vector<Value> all = collect(heap, value);
  std::vector<Value> parts;
  auto from = all.begin();
  for (std::size_t i = 0; i < count; ++i) {
    heap.step();
    const bool extra = i < all.size() % count;
    const auto end = from + static_cast<std::ptrdiff_t>(all.size() / count + (extra ? 1 : 0));
    std::vector<Value> part(from, end);
    if (parameters.has_value(1) && !extra) part.push_back(parameters.at(1));
    parts.push_back(make_list(heap, std::move(part)));
    from = end;
  }
  return make_list(heap, std::move(parts), ListKind::kGenerator);
}

Value group_by(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "groupby", {"attribute", "default", "case_sensitive"});
  const bool case_sensitive = parameters.flag_or(2, false);
  const Value fallback = parameters.has_value(1) ? parameters.at(1) : Value();
  const auto exact_key = [&](const Value& item) {
    return attribute_path(heap, item, parameters.at(0), fallback);
  };
  const auto key_of = [&](const Value& item) {
    const Value key = exact_key(item);
    return case_sensitive ? key : ignore_case(heap, key);
  };
  std::vector<Keyed> keyed;
  for (const Value& item : collect(heap, value)) keyed.push_back({key_of(item), item});
  const std::vector<Value> sorted = sorted_items(heap, std::move(keyed), false);
  std::vector<Value> groups;
  for (std::size_t at = 0; at < sorted.size();) {
    const Value key = key_of(sorted[at]);
    const Value shown = exact_key(sorted[at]);
    std::vector<Value> members;
    for (; at < sorted.size() && equals(heap, key_of(sorted[at]), key); ++at) members.push_back(sorted[at]);
    if (members.empty()) fail("groupby: a key does not equal itself");  // NaN
    groups.push_back(make_list(heap, {shown, make_list(heap, std::move(members))}, ListKind::kGroup));
  }
  return make_list(heap, std::move(groups));
}

Value attr(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "attr", {"name"});
  const Text name = text_of(heap, parameters.at(0));
  // Attributes only: a key of a dict is none.
  if (value.dict() != nullptr && find_dict_method(name->bytes) == nullptr)
    return Undefined{name, "dict object"};
  return get_attribute(heap, value, name);
}

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> table = {
      {"length", count},       {"count", count}, {"list", list},       {"first", first},
      {"last", last},          {"join", join},   {"reverse", reverse}, {"sort", sort},
      {"dictsort", dict_sort}, {"items", items}, {"unique", unique},   {"min", extreme<false>},
      {"max", extreme<true>},  {"sum", sum},     {"batch", batch},     {"slice", slices},
      {"groupby", group_by},   {"attr", attr},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace shoal::tokenizer::jinja
