// What a model file says about its vocabulary, as it stands there and not yet checked.
//
// Thread-safety: a value.
// Ownership: owns all of it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal::tokenizer {

// Numbers of tokenizer.ggml.token_type.
enum class TokenType : std::int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct VocabularySpec {
  std::string source;      // the file, for messages
  std::string model_name;  // general.name: one family's quirk hangs on it
  std::string model;       // "gpt2": byte-level BPE; "llama": SentencePiece BPE with scores
  std::string pre;         // pre-tokenizer, for "gpt2"

  std::vector<std::string> tokens;
  std::vector<float> scores;        // "llama" only; as many as tokens
  std::vector<std::int32_t> types;  // TokenType; empty: all normal
  std::vector<std::string> merges;  // "gpt2" only: "left right", most important first

  std::optional<std::int64_t> bos, eos, eot, eom, unknown;
  // Fill-in-the-middle tokens that end an answer when a model emits them.
  std::optional<std::int64_t> fim_pad, fim_repository, fim_separator;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string chat_template;
};

}  // namespace shoal::tokenizer
