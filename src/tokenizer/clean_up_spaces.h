// Removes the spaces before punctuation and English contractions that older byte-level families' reference
// decoders remove: "Hello , it 's" becomes "Hello, it's". See Tokenizer::cleans_up_spaces.
//
// Thread-safety: a pure function.

#pragma once

#include <string>
#include <string_view>

namespace shoal::tokenizer {

std::string clean_up_spaces(std::string_view text);

}  // namespace shoal::tokenizer
