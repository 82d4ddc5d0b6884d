// How the template interpreter reports a failure inside itself: one exception type that never leaves
// ChatTemplate, where it becomes a Status.
//
// Thread-safety: values.

#pragma once

#include <string>
#include <utility>

namespace shoal::tokenizer::jinja {

struct Failure {
  std::string message;
  // The template called raise_exception: the message is the template author's own sentence.
  bool raised = false;
};

[[noreturn]] inline void fail(std::string message) { throw Failure{std::move(message)}; }

}  // namespace shoal::tokenizer::jinja
