// A template's source as a tree.
//
// Thread-safety: pure function.

#pragma once

#include <string_view>

#include "tokenizer/jinja_ast.h"

namespace shoal::tokenizer::jinja {

// Throws Failure, whose message begins with the line. Tags that need other templates (extends, include,
// import) are refused: a chat template stands alone.
Template parse_template(std::string_view source);

}  // namespace shoal::tokenizer::jinja
