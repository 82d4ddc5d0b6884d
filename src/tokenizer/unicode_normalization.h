// Unicode's normal forms: composed, "e" and a combining acute accent become "é"; decomposed, the other way;
// and both with compatibility characters replaced, "ﬁ" by "fi".
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shoal::tokenizer {

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// text: valid UTF-8. Linear but for runs of combining marks, which are sorted.
std::string normalize(std::string_view text, NormalForm form);

}  // namespace shoal::tokenizer
