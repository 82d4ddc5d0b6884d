#include "tokenizer/jinja_globals.h"

#include <array>
#include <cstdlib>
#include <ctime>
#include <string>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_sequence.h"

namespace shoal::tokenizer::jinja {
namespace {

// Elements of one range(), as in Jinja's sandbox.
constexpr std::int64_t kMaxRange = 100'000;

struct GlobalFunction : Callable {
  GlobalFunction(std::string_view n, PlainFunction f) : name(n), function(f) {}
  Value call(Heap& heap, Arguments& arguments) override { return function(heap, arguments); }
  std::string describe() const override { return "<function " + name + ">"; }

  std::string name;
  PlainFunction function;
};

Value range(Heap& heap, Arguments& arguments) {
  const Parameters parameters(arguments, "range", {"start", "stop", "step"});
  const bool one = !parameters.has(1);
  std::int64_t at = one ? 0 : parameters.integer(0);
  const std::int64_t stop = parameters.integer(one ? 0 : 1);
  const std::int64_t step = parameters.has(2) ? parameters.integer(2) : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  while (step > 0 ? at < stop : at > stop) {
    if (static_cast<std::int64_t>(items.size()) == kMaxRange) {
      fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    }
    heap.step();
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_list(heap, std::move(items), ListKind::kRange);
}

// dict(other, name=value, ...)
Dict* build_dict(Heap& heap, Arguments& arguments) {
  Dict* dict = heap.make<Dict>();
  if (arguments.positional.size() > 1) fail("dict expected at most 1 argument");
  if (!arguments.positional.empty()) merge_into(heap, *dict, arguments.positional[0]);
  for (const auto& [name, value] : arguments.named) dict->set(heap, name, value);
  return dict;
}

Value dict(Heap& heap, Arguments& arguments) { return build_dict(heap, arguments); }

Value make_namespace(Heap& heap, Arguments& arguments) {
  return heap.make<Namespace>(build_dict(heap, arguments));
}

Value raise_exception(Heap& heap, Arguments& arguments) {
  const Parameters parameters(arguments, "raise_exception", {"message"});
  throw Failure{str_of(heap, parameters.at(0)), true};
}

std::tm now() {
  std::tm fields{};
  const char* pinned = std::getenv("SOURCE_DATE_EPOCH");
  if (pinned != nullptr && *pinned != '\0') {
    const std::time_t seconds = std::strtoll(pinned, nullptr, 10);
    gmtime_r(&seconds, &fields);
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &fields);
  }
  return fields;
}

// Python's strftime knows %f, microseconds, which the C one does not.
std::string with_microseconds(const std::string& format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out.push_back(format[i]);
    } else if (format[++i] == 'f') {
      out += "000000";
    } else {
      out.push_back('%');
      out.push_back(format[i]);
    }
  }
  return out;
}

Value strftime_now(Heap& heap, Arguments& arguments) {
  const Parameters parameters(arguments, "strftime_now", {"format"});
  const std::string format = with_microseconds(parameters.text(0));
  if (format.find('\0') != std::string::npos) fail("embedded null character");
  // The space tells an empty result from one that does not fit.
  const std::string marked = format + " ";
  const std::tm fields = now();
  std::array<char, 4096> buffer{};
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), marked.c_str(), &fields);
  if (size == 0) fail("strftime_now: the result is longer than 4096 bytes");
  return make_text(heap, std::string(buffer.data(), size - 1));
}

// cycler(a, b): next() gives them in turn.
struct Cycler : Callable {
  explicit Cycler(std::vector<Value> i) : items(std::move(i)) {}
  Value call(Heap&, Arguments&) override { fail("'Cycler' object is not callable"); }
  std::string describe() const override { return "<Cycler>"; }
  bool attribute(Heap& heap, std::string_view name, Value& out) override;

  std::vector<Value> items;
  std::size_t at = 0;
};

struct CyclerMethod : Callable {
  CyclerMethod(Cycler* c, bool r) : cycler(c), resets(r) {}
  Value call(Heap&, Arguments& arguments) override {
    const Parameters parameters(arguments, resets ? "reset" : "next", {});
    if (resets) {
      cycler->at = 0;
      return None{};
    }
    const Value item = cycler->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items.size();
    return item;
  }
  std::string describe() const override { return "<bound method of Cycler>"; }

  Cycler* cycler;
  bool resets;
};

bool Cycler::attribute(Heap& heap, std::string_view name, Value& out) {
  if (name == "current") {
    out = items[at];
  } else if (name == "next" || name == "reset") {
    out = heap.make<CyclerMethod>(this, name == "reset");
  } else {
    return false;
  }
  return true;
}

Value cycler(Heap& heap, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) fail("at least one item has to be provided");
  return heap.make<Cycler>(arguments.positional);
}

// joiner(", "): nothing the first time, the separator afterwards.
struct Joiner : Callable {
  explicit Joiner(Value s) : separator(std::move(s)) {}
  Value call(Heap& heap, Arguments& arguments) override {
    const Parameters parameters(arguments, "joiner", {});
    if (used) return separator;
    used = true;
    return make_text(heap, "");
  }
  std::string describe() const override { return "<Joiner>"; }

  Value separator;
  bool used = false;
};

Value joiner(Heap& heap, Arguments& arguments) {
  const Parameters parameters(arguments, "joiner", {"sep"});
  return heap.make<Joiner>(parameters.at_or(0, make_text(heap, ", ")));
}

}  // namespace

Callable* make_global(Heap& heap, std::string_view name) {
  static const std::unordered_map<std::string_view, PlainFunction> table = {
      {"range", range},
      {"dict", dict},
      {"namespace", make_namespace},
      {"cycler", cycler},
      {"joiner", joiner},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : heap.make<GlobalFunction>(name, found->second);
}

}  // namespace shoal::tokenizer::jinja
