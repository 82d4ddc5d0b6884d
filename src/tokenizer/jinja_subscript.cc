// The subscript half of jinja_operators.h: value[key], value.name and value[start:stop:step].

#include <limits>
#include <string>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

// Which elements of a sequence a slice takes: start, start + step, ..., count of them.
struct SliceBounds {
  std::int64_t start;
  std::int64_t step;
  std::int64_t count;
};

// The owner an undefined attribute names: "dict object", but "None" for none.
const char* owner_name(const Value& object) {
  if (object.is_none()) return "None";
  if (object.as<bool>() != nullptr) return "bool object";
  if (object.as<std::int64_t>() != nullptr) return "int object";
  if (object.as<double>() != nullptr) return "float object";
  if (object.is_text()) return "str object";
  if (object.dict() != nullptr) return "dict object";
  if (object.space() != nullptr) return "jinja2.utils.Namespace object";
  if (object.callable() != nullptr) return "function object";
  switch (object.list()->kind) {
    case ListKind::kList:
      return "list object";
    case ListKind::kTuple:
    case ListKind::kGroup:
      return "tuple object";
    case ListKind::kGenerator:
      return "generator object";
    default:
      return "range object";
  }
}

// True and the value where Python's getattr would find one.
bool find_attribute(Heap& heap, const Value& object, const Text& name, Value& out) {
  if (const MethodFunction method = find_method(object, name->bytes)) {
    out = bind_method(heap, object, method, name);
    return true;
  }
  if (const Namespace* space = object.space()) {
    const Value* field = space->fields->find(heap, std::string_view(name->bytes));
    if (field != nullptr) out = *field;
    return field != nullptr;
  }
  if (Callable* callable = object.callable()) return callable->attribute(heap, name->bytes, out);
  if (const List* list = object.list(); list != nullptr && list->kind == ListKind::kGroup) {
    if (name->bytes == "grouper") out = list->items[0];
    if (name->bytes == "list") out = list->items[1];
    return name->bytes == "grouper" || name->bytes == "list";
  }
  return false;
}

bool is_indexable(const List& list) {
  return list.kind == ListKind::kList || list.kind == ListKind::kTuple || list.kind == ListKind::kRange ||
         list.kind == ListKind::kGroup;
}

// Element `index` of a list or character of a text, counted from the end where negative.
bool find_index(Heap& heap, const Value& container, std::int64_t index, Value& out) {
  const List* list = container.list();
  if (list != nullptr ? !is_indexable(*list) : !container.is_text()) return false;
  const std::int64_t size = length(container);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return false;
  if (list != nullptr) {
    out = list->items[static_cast<std::size_t>(index)];
    return true;
  }
  const TextData& text = *container.text();
  const auto position = static_cast<std::size_t>(index);
  if (!text.ascii) heap.step(position / 64);  // walking over characters is slower than copying bytes
  const std::size_t at = text.ascii ? position : char_offset(text.bytes, position);
  out = make_text(heap, text.bytes.substr(at, utf8_length(text.bytes[at])));
  return true;
}

std::int64_t bound_of(const Value& bound, std::int64_t absent) {
  if (bound.is_none()) return absent;
  if (!bound.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
  return bound.integral();
}

// Python's slice.indices(): which elements of `size`, and how many.
SliceBounds slice_bounds(std::int64_t size, const Value& start, const Value& stop, const Value& step) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  SliceBounds bounds{};
  bounds.step = bound_of(step, 1);
  if (bounds.step == 0) fail("slice step cannot be zero");
  if (bounds.step < -kMax) bounds.step = -kMax;
  const bool forward = bounds.step > 0;
  const auto clamp = [&](std::int64_t at) {
    if (at < 0) at += size;  // no wrap: size >= 0 and at < 0
    if (at < 0) return forward ? std::int64_t{0} : std::int64_t{-1};
    return at >= size ? (forward ? size : size - 1) : at;
  };
  bounds.start = start.is_none() ? (forward ? 0 : size - 1) : clamp(bound_of(start, 0));
  const std::int64_t end = stop.is_none() ? (forward ? size : -1) : clamp(bound_of(stop, 0));
  const std::int64_t distance = forward ? end - bounds.start : bounds.start - end;
  const std::int64_t stride = forward ? bounds.step : -bounds.step;
  bounds.count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  return bounds;
}

Value slice_text(Heap& heap, const TextData& text, const SliceBounds& bounds) {
  if (bounds.step == 1) {
    const auto start = static_cast<std::size_t>(bounds.start);
    const auto count = static_cast<std::size_t>(bounds.count);
    if (text.ascii) return heap.text(text.bytes.substr(start, count), text.markup);
    const std::size_t from = char_offset(text.bytes, start);
    const std::string_view rest = std::string_view(text.bytes).substr(from);
    heap.step(text.bytes.size() / 64);
    return heap.text(std::string(rest.substr(0, char_offset(rest, count))), text.markup);
  }
  // Any other step: the offsets of all characters, then one by one.
  heap.step(text.bytes.size() / 16);
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < text.bytes.size(); at += utf8_length(text.bytes[at])) offsets.push_back(at);
  std::string out;
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const std::size_t at = offsets[static_cast<std::size_t>(bounds.start + i * bounds.step)];
    out.append(text.bytes, at, utf8_length(text.bytes[at]));
  }
  return heap.text(std::move(out), text.markup);
}

}  // namespace

Value get_item(Heap& heap, const Value& container, const Value& key) {
  require_defined(container);
  Value out;
  if (Dict* dict = container.dict()) {
    if (const Value* found = is_hashable(heap, key) ? dict->find(heap, key) : nullptr) return *found;
  } else if (key.is_integral() && find_index(heap, container, key.integral(), out)) {
    return out;
  }
  if (key.is_text()) {
    if (find_attribute(heap, container, key.text(), out)) return out;
    return Undefined{key.text(), owner_name(container)};
  }
  const std::string sentence = std::string(owner_name(container)) + " has no element " + repr_of(heap, key);
  return Undefined{heap.text(sentence), Undefined::kSentence};
}

Value get_attribute(Heap& heap, const Value& object, const Text& name) {
  require_defined(object);
  Value out;
  if (find_attribute(heap, object, name, out)) return out;
  if (Dict* dict = object.dict()) {
    if (const Value* found = dict->find(heap, std::string_view(name->bytes))) return *found;
  }
  return Undefined{name, owner_name(object)};
}

Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  const List* list = value.list();
  if (!value.is_text() && (list == nullptr || !is_indexable(*list))) {
    fail(std::string("'") + type_name(value) + "' object is not subscriptable");
  }
  const SliceBounds bounds = slice_bounds(length(value), start, stop, step);
  if (list == nullptr) return slice_text(heap, *value.text(), bounds);
  heap.step(static_cast<std::uint64_t>(bounds.count));
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(bounds.count));
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(list->items[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
  }
  return make_list(heap, std::move(items), list->kind == ListKind::kGroup ? ListKind::kTuple : list->kind);
}

}  // namespace shoal::tokenizer::jinja
