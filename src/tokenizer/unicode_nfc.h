// Unicode's canonical composition (NFC): "e" and a combining acute accent become "é".
//
// Thread-safety: a pure function.

#pragma once

#include <string>
#include <string_view>

namespace shoal::tokenizer {

// text: valid UTF-8. Linear but for runs of combining marks, which are sorted.
std::string to_nfc(std::string_view text);

}  // namespace shoal::tokenizer
