// Taking texts apart and replacing parts of them: shared by methods and filters.
//
// Thread-safety: as the values.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_methods.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

// str.split and rsplit, splitlines, partition and join: the methods that make lists of texts or take them.
MethodFunction find_split_method(std::string_view name);

// The first `count` occurrences, all where negative. An empty `old` stands between all characters.
std::string replace_text(Heap& heap, std::string_view text, std::string_view old, std::string_view fresh,
                         std::int64_t count);

// Offset of the last occurrence, npos where there is none. Linear, as find_text.
std::size_t find_last_text(std::string_view text, std::string_view wanted);

// Lines by Python's line ends, with them where keep_ends. Views into text.
std::vector<std::string_view> split_lines(Heap& heap, std::string_view text, bool keep_ends);

// str.center, which puts an odd space where Python does.
std::string centered(Heap& heap, const std::string& text, const FormatSpec& spec);

// At least one character of this case, none of the other.
bool has_only_case(std::string_view text, CharClass wanted);

}  // namespace shoal::tokenizer::jinja
