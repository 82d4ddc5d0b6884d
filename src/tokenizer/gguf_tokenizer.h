// The tokenizer of a GGUF file: byte-level BPE ("gpt2") or SentencePiece BPE ("llama").
//
// What the ids of a text are is defined by llama.cpp, which the files are made for.

#pragma once

#include <memory>

#include "core/expected.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary_spec.h"

namespace shoal::tokenizer {

// Fails with kCorrupt where the vocabulary contradicts itself and kUnsupported for a model or pre-tokenizer
// that nothing here knows; the message begins with spec.source.
Expected<std::shared_ptr<const Tokenizer>> make_gguf_tokenizer(VocabularySpec spec);

}  // namespace shoal::tokenizer
