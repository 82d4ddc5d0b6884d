// The values a template computes with: Python's, as far as templates see them.
//
// Thread-safety: none; values belong to one rendering. Literals of a template are shared by renderings and
//   never change.
// Ownership: a Value shares its text and points to objects that the rendering's Heap owns.
// Invariants:
//   1. Containers are references: a copy of a Value is the same list.
//   2. Dict keeps the order of insertion and finds 1, 1.0 and true under one key, as Python does.
//   3. Integers are 64 bits; arithmetic that leaves them fails, it never wraps.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja_heap.h"

namespace shoal::tokenizer::jinja {

// What a missing variable, attribute or argument gives. Printing it gives nothing, using it fails with a
// sentence made of these two.
struct Undefined {
  Text name;                               // of what is missing, or the whole sentence
  const char* owner = nullptr;             // type of the object that lacks it; null for a variable
  static constexpr char kSentence[] = "";  // as owner: `name` is the sentence
};

struct None {};

struct List;
struct Dict;
struct Namespace;
struct Callable;

class Value {
 public:
  Value() = default;  // undefined, without a name
  Value(None) : data_(None{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(Text text) : data_(std::move(text)) {}
  Value(List* list) : data_(list) {}
  Value(Dict* dict) : data_(dict) {}
  Value(Namespace* space) : data_(space) {}
  Value(Callable* callable) : data_(callable) {}
  // Not converting constructors: a pointer or a size must not become a bool or an int by accident.
  static Value boolean(bool value) { return Value(Data(value)); }
  static Value integer(std::int64_t value) { return Value(Data(value)); }
  static Value real(double value) { return Value(Data(value)); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_text() const { return std::holds_alternative<Text>(data_); }
  // Python's int, of which bool is one.
  bool is_integral() const { return as<bool>() != nullptr || as<std::int64_t>() != nullptr; }
  bool is_number() const { return is_integral() || as<double>() != nullptr; }

  // The alternative T, or null.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  List* list() const { return pointer<List>(); }
  Dict* dict() const { return pointer<Dict>(); }
  Namespace* space() const { return pointer<Namespace>(); }
  Callable* callable() const { return pointer<Callable>(); }

  // The text's bytes; only for is_text().
  const std::string& str() const { return (*std::get_if<Text>(&data_))->bytes; }
  const Text& text() const { return *std::get_if<Text>(&data_); }
  // bool and int as a number; only for is_integral().
  std::int64_t integral() const {
    const bool* flag = as<bool>();
    return flag != nullptr ? static_cast<std::int64_t>(*flag) : *as<std::int64_t>();
  }
  // Any number; only for is_number().
  double real_number() const {
    const double* value = as<double>();
    return value != nullptr ? *value : static_cast<double>(integral());
  }

 private:
  using Data =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, List*, Dict*, Namespace*, Callable*>;
  explicit Value(Data data) : data_(std::move(data)) {}
  template <typename T>
  T* pointer() const {
    T* const* found = std::get_if<T*>(&data_);
    return found != nullptr ? *found : nullptr;
  }

  Data data_;
};

// What a List stands for: they hold the same, but print, compare and answer tests differently.
enum class ListKind : std::uint8_t {
  kList,
  kTuple,
  kRange,
  kKeys,
  kValues,
  kItems,
  kGroup,      // a pair (grouper, list) with those two attributes
  kGenerator,  // what map, select and the like give: true, without a length, and gone once iterated
};

struct List : Object {
  explicit List(ListKind k) : kind(k) {}
  ListKind kind;
  std::vector<Value> items;
  std::size_t consumed = 0;  // of a generator: items already given out
};

struct Dict : Object {
  struct Entry {
    Value key;
    Value value;
  };
  std::vector<Entry> entries;

  // Null where absent. Fails for a key that cannot be one.
  Value* find(Heap& heap, const Value& key);
  Value* find(Heap& heap, std::string_view key);
  void set(Heap& heap, const Value& key, Value value);
  // False where absent.
  bool erase(Heap& heap, const Value& key);
  void clear();

 private:
  std::size_t position(Heap& heap, const Value& key) const;
  std::size_t position(Heap& heap, std::string_view key) const;
  void rebuild_index(Heap& heap);

  // Hash of key to position; kept only past kIndexFrom entries.
  static constexpr std::size_t kIndexFrom = 12;
  static constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
  std::unordered_multimap<std::size_t, std::size_t> index_;
};

struct Namespace : Object {
  explicit Namespace(Dict* dict) : fields(dict) {}
  Dict* fields;
};

// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Text, Value>> named;

  // Takes the named argument out; false where it was not given.
  bool take(std::string_view name, Value& out);
};

// Whatever can be called, and the objects with attributes of their own: macros, loops, cyclers.
struct Callable : Object {
  virtual Value call(Heap& heap, Arguments& arguments) = 0;
  // False where there is no such attribute.
  virtual bool attribute(Heap& heap, std::string_view name, Value& out);
  // What printing it gives.
  virtual std::string describe() const = 0;
};

Value make_list(Heap& heap, std::vector<Value> items, ListKind kind = ListKind::kList);
Value make_text(Heap& heap, std::string bytes);

// Python's name of the type: str, int, NoneType, dict.
const char* type_name(const Value& value);
bool is_hashable(Heap& heap, const Value& value, int depth = 0);
// Only for what is_hashable.
std::size_t hash_of(Heap& heap, const Value& key);

// Throws the sentence that belongs to an undefined value.
[[noreturn]] void fail_undefined(const Undefined& undefined);
// Throws it if the value is undefined.
inline void require_defined(const Value& value) {
  if (const Undefined* undefined = value.as<Undefined>()) fail_undefined(*undefined);
}

}  // namespace shoal::tokenizer::jinja
