// Reads the vocabulary of a GGUF file.
//
// Thread-safety: a pure function.
// Ownership: the result owns everything; the file may go.

#pragma once

#include "core/expected.h"
#include "formats/gguf_file.h"
#include "tokenizer/vocabulary_spec.h"

namespace shoal::tokenizer {

// Fails with kNotFound where the file has no vocabulary and kCorrupt where a value has the wrong type.
// Whether the values agree with each other is Vocabulary::build's matter.
Expected<VocabularySpec> read_vocabulary(const formats::GgufFile& file);

}  // namespace shoal::tokenizer
