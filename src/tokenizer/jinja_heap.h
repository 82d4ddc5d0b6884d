// The memory and the patience of one rendering: owns every object it makes, counts every step it takes, and
// ends it when a template asks for too much.
//
// Thread-safety: none; one rendering, one thread.
// Ownership: objects live until the Heap goes, so a list may hold itself and nothing leaks. Texts are counted
//   and go earlier, but never later than the Heap.
// Invariants: past a limit every charging function throws a Failure that names the limit.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::tokenizer::jinja {

struct Limits {
  // Evaluated nodes and loop turns, and one more per 256 bytes of text made. A long conversation of 1,000
  // messages takes about 500,000; 2 million are 0.3 to 1.2 seconds.
  std::uint64_t steps = 2'000'000;
  // All texts and containers alive at one time, in bytes.
  std::size_t live_bytes = std::size_t{512} << 20;
  // One text, or the output, in bytes.
  std::size_t text_bytes = std::size_t{64} << 20;
  // Nested evaluations: macros that call macros, loops in loops. Each takes about 1 KiB of the stack.
  int depth = 1000;
};

// Containers inside containers that repr, tojson and comparisons follow.
inline constexpr int kMaxNesting = 200;

// Anything a value points to that is not a number or a text.
struct Object {
  virtual ~Object() = default;
};

// An immutable piece of text, shared by the values that hold it.
struct TextData {
  std::string bytes;  // valid UTF-8
  std::size_t chars = 0;
  bool ascii = true;            // characters are bytes
  bool markup = false;          // made by |safe or |escape: not to be escaped again
  std::size_t* live = nullptr;  // the Heap's count that this text is part of, if any

  TextData(std::string b, bool is_markup, std::size_t* counted);
  ~TextData() {
    if (live != nullptr) *live -= bytes.size();
  }
  TextData(const TextData&) = delete;
  TextData& operator=(const TextData&) = delete;
};
using Text = std::shared_ptr<const TextData>;

// A text that belongs to no rendering: literals of a template.
Text constant_text(std::string bytes);

class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}

  const Limits& limits() const { return limits_; }

  void step(std::uint64_t count = 1) {
    if (steps_left_ < count) out_of_steps();
    steps_left_ -= count;
  }
  // Charges bytes of a container that is about to grow.
  void grow(std::size_t bytes);
  // Charges and later releases bytes of an output buffer.
  void grow_buffer(std::size_t bytes, std::size_t total);
  void shrink_buffer(std::size_t bytes) { live_ -= bytes; }
  // Fails where a text of so many bytes may not be made; call it before making a large one.
  void check_text(std::size_t bytes) const;

  Text text(std::string bytes, bool markup = false);

  template <typename T, typename... Arguments>
  T* make(Arguments&&... arguments) {
    grow(sizeof(T) + sizeof(void*));
    auto object = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }

  void enter() {
    if (depth_ >= limits_.depth) too_deep();
    ++depth_;
  }
  void leave() { --depth_; }

 private:
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void too_deep() const;

  Limits limits_;
  std::uint64_t steps_left_;
  std::size_t live_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;  // last: their texts still count in live_ when they go
};

// One level of nested evaluation, for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Heap& heap) : heap_(heap) { heap_.enter(); }
  ~DepthGuard() { heap_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Heap& heap_;
};

// Text being put together: a template's output, or that of a macro or a set block.
class Output {
 public:
  explicit Output(Heap& heap) : heap_(heap) {}
  ~Output() { heap_.shrink_buffer(charged_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void append(std::string_view text) {
    heap_.grow_buffer(text.size(), bytes_.size() + text.size());
    charged_ += text.size();
    bytes_.append(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  Heap& heap_;
  std::string bytes_;
  std::size_t charged_ = 0;
};

}  // namespace shoal::tokenizer::jinja
