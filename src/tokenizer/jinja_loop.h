// The `loop` variable of a for loop, and the pass over its elements.
//
// Thread-safety: none; one rendering.
// Invariants: elements are taken as late as possible: looking at loop.last or loop.nextitem takes one more,
//   loop.length over a filtered loop takes all. A filter that depends on what the body does sees it.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_operators.h"

namespace shoal::tokenizer::jinja {

struct LoopObject : Callable {
  LoopObject(Interpreter& i, const ForStatement& n, Scope& s, const Value& iterable, int d);

  // Moves to the next element; false at the end.
  bool advance();
  const Value& current() const { return current_; }
  // The loop is over: no more elements, since the scope its filter sees may be gone.
  void finish() { finished_ = true; }

  // loop(children): the body again, one level deeper.
  Value call(Heap& heap, Arguments& arguments) override;
  bool attribute(Heap& heap, std::string_view name, Value& out) override;
  std::string describe() const override { return "<LoopContext>"; }

  // The methods loop.cycle and loop.changed.
  Value cycle(const Arguments& arguments) const;
  Value changed(Heap& heap, const Arguments& arguments);

 private:
  // The next element that passes the filter.
  bool pull(Value& out);
  bool peek();
  std::int64_t total();

  Interpreter& interpreter_;
  const ForStatement& node_;
  Scope& scope_;
  Iterator iterator_;
  bool filtered_ = false;  // what iterator_ gives has passed the filter already
  bool finished_ = false;
  int depth_;
  std::int64_t index_ = -1;
  std::optional<std::int64_t> total_;
  Value before_;
  Value current_;
  std::optional<Value> after_;
  std::optional<Value> last_changed_;
};

}  // namespace shoal::tokenizer::jinja
