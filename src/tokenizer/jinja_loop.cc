#include "tokenizer/jinja_loop.h"

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"

namespace shoal::tokenizer::jinja {
namespace {

struct LoopMethod : Callable {
  LoopMethod(LoopObject* l, bool c) : loop(l), cycles(c) {}
  Value call(Heap& heap, Arguments& arguments) override {
    return cycles ? loop->cycle(arguments) : loop->changed(heap, arguments);
  }
  std::string describe() const override { return "<bound method of LoopContext>"; }

  LoopObject* loop;
  bool cycles;
};

}  // namespace

LoopObject::LoopObject(Interpreter& i, const ForStatement& n, Scope& s, const Value& iterable, int d)
    : interpreter_(i), node_(n), scope_(s), iterator_(i.heap_, iterable), depth_(d) {}

bool LoopObject::pull(Value& out) {
  while (!finished_ && iterator_.next(out)) {
    interpreter_.heap_.step();
    if (node_.filter == nullptr || filtered_) return true;
    Scope scope(&scope_);
    interpreter_.assign(node_.target, out, scope);
    if (truthy(interpreter_.evaluate(*node_.filter, scope))) return true;
  }
  return false;
}

bool LoopObject::advance() {
  Value next;
  if (after_) {
    next = std::move(*after_);
    after_.reset();
  } else if (!pull(next)) {
    return false;
  }
  ++index_;
  before_ = std::move(current_);
  current_ = std::move(next);
  return true;
}

bool LoopObject::peek() {
  if (after_) return true;
  Value next;
  if (!pull(next)) return false;
  after_ = std::move(next);
  return true;
}

std::int64_t LoopObject::total() {
  if (total_) return *total_;
  if (node_.filter == nullptr) total_ = iterator_.size();
  if (total_) return *total_;
  // No length to ask for: take what is left, and go on over that.
  std::vector<Value> rest;
  if (after_) rest.push_back(*after_);
  Value next;
  while (pull(next)) rest.push_back(next);
  total_ = index_ + 1 + static_cast<std::int64_t>(rest.size());
  after_.reset();
  iterator_ = Iterator(interpreter_.heap_, make_list(interpreter_.heap_, std::move(rest)));
  filtered_ = true;
  return *total_;
}

Value LoopObject::call(Heap& heap, Arguments& arguments) {
  const Parameters parameters(arguments, "loop", {"iterable"});
  if (!node_.recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  Output out(heap);
  interpreter_.run_loop(node_, parameters.at(0), scope_, depth_ + 1, out);
  return make_text(heap, out.take());
}

bool LoopObject::attribute(Heap& heap, std::string_view name, Value& out) {
  const auto missing = [&](const char* sentence) {
    return Undefined{heap.text(sentence), Undefined::kSentence};
  };
  if (name == "index") {
    out = Value::integer(index_ + 1);
  } else if (name == "index0") {
    out = Value::integer(index_);
  } else if (name == "first") {
    out = Value::boolean(index_ == 0);
  } else if (name == "last") {
    out = Value::boolean(!peek());
  } else if (name == "length") {
    out = Value::integer(total());
  } else if (name == "revindex") {
    out = Value::integer(total() - index_);
  } else if (name == "revindex0") {
    out = Value::integer(total() - index_ - 1);
  } else if (name == "depth") {
    out = Value::integer(depth_ + 1);
  } else if (name == "depth0") {
    out = Value::integer(depth_);
  } else if (name == "previtem") {
    out = index_ == 0 ? Value(missing("there is no previous item")) : before_;
  } else if (name == "nextitem") {
    out = peek() ? *after_ : Value(missing("there is no next item"));
  } else if (name == "cycle" || name == "changed") {
    out = heap.make<LoopMethod>(this, name == "cycle");
  } else {
    return false;
  }
  return true;
}

Value LoopObject::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[static_cast<std::size_t>(index_) % arguments.positional.size()];
}

Value LoopObject::changed(Heap& heap, const Arguments& arguments) {
  Value seen = make_list(heap, arguments.positional, ListKind::kTuple);
  if (last_changed_ && equals(heap, *last_changed_, seen)) return Value::boolean(false);
  last_changed_ = std::move(seen);
  return Value::boolean(true);
}

}  // namespace shoal::tokenizer::jinja
