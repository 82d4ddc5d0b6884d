#include "tokenizer/jinja_heap.h"

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_unicode.h"

namespace shoal::tokenizer::jinja {
namespace {

// memcpy of 256 bytes costs about as much as one evaluated node.
constexpr std::size_t kBytesPerStep = 256;

}  // namespace

TextData::TextData(std::string b, bool is_markup, std::size_t* counted)
    : bytes(std::move(b)),
      chars(count_chars(bytes)),
      ascii(chars == bytes.size()),
      markup(is_markup),
      live(counted) {}

Text constant_text(std::string bytes) { return std::make_shared<TextData>(std::move(bytes), false, nullptr); }

void Heap::grow(std::size_t bytes) {
  if (bytes > limits_.live_bytes || live_ > limits_.live_bytes - bytes) {
    fail("the template needs more than " + std::to_string(limits_.live_bytes >> 20) + " MiB of memory");
  }
  live_ += bytes;
}

void Heap::grow_buffer(std::size_t bytes, std::size_t total) {
  check_text(total);
  step(bytes / kBytesPerStep);
  grow(bytes);
}

void Heap::check_text(std::size_t bytes) const {
  if (bytes > limits_.text_bytes) {
    fail("the template makes a text of more than " + std::to_string(limits_.text_bytes >> 20) + " MiB");
  }
}

Text Heap::text(std::string bytes, bool markup) {
  check_text(bytes.size());
  step(bytes.size() / kBytesPerStep);
  grow(bytes.size());
  // The text takes the count over, and gives it back when it goes.
  return std::make_shared<TextData>(std::move(bytes), markup, &live_);
}

void Heap::out_of_steps() const {
  fail("the template takes more than " + std::to_string(limits_.steps) + " steps");
}

void Heap::too_deep() const {
  fail("the template nests calls and loops more than " + std::to_string(limits_.depth) + " deep");
}

}  // namespace shoal::tokenizer::jinja
