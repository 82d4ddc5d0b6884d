// The tokens that end an answer, by their names: nothing in the files marks all of them.
//
// Thread-safety: a pure function.

#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace shoal::tokenizer {

// find: the id of a token by its name. Tokens that would end an answer in one family but only part of it in
// this one are left out: "<|end|>" where "<|return|>" and "<|call|>" are, "</s>" where "<|tool_response>" is.
std::vector<TokenId> generation_ends(const std::function<std::optional<TokenId>(std::string_view)>& find);

}  // namespace shoal::tokenizer
