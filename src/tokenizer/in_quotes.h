// Text of a model's file, made fit for an error message that goes to a terminal, a log or a client.
//
// Thread-safety: pure.
// Invariants: what comes out is UTF-8 without control characters, a line at most.

#pragma once

#include <string>
#include <string_view>

namespace shoal::tokenizer {

// In single quotes, at most `most` bytes of it (then "..."): control characters and bytes that are not UTF-8
// as \xNN, a token like "Ġhello" as it is.
std::string in_quotes(std::string_view text, std::size_t most = 40);

}  // namespace shoal::tokenizer
