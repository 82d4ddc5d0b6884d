// A template's source as tokens, with Jinja's rules for the whitespace around tags.
//
// Thread-safety: pure function.
// Invariants: settings are those chat templates are written for: trim_blocks and lstrip_blocks on, one
//   newline at the end of the source dropped, all line ends \n. Brackets inside a tag balance. The last token
//   is kEnd.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::tokenizer::jinja {

enum class TokenType : std::uint8_t {
  kEnd,
  kData,           // template text
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kText,
  kInteger,
  kReal,
  kOperator,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;  // of data, names, operators as written; of texts with escapes resolved
  std::int64_t integer = 0;
  double real = 0;
};

// Throws Failure, whose message begins with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace shoal::tokenizer::jinja
