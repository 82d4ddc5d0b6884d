// The pre-tokenizers that `tokenizer.ggml.pre` of a GGUF file may name, as data.
//
// Names and behaviour are llama.cpp's, which the files were made for: where its patterns differ from the ones
// a family published (letters without case outside ASCII, for one), these do too.
//
// Thread-safety: a constant table.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::tokenizer {

struct PreTokenizer {
  std::vector<std::string> patterns;  // for RegexSplitter
  bool ignore_merges = false;         // a word that is a token is that token, whatever the merges say
  bool add_bos = false;               // where the file does not say
  bool cleans_spaces = true;          // see Tokenizer::cleans_up_spaces
};

// name: as in the file; empty means "default". The error of an unknown name lists the known ones.
Expected<PreTokenizer> find_pretokenizer(std::string_view name);

}  // namespace shoal::tokenizer
