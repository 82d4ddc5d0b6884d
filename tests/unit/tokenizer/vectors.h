// Where the tests of this folder find reference vectors, and small vocabularies made in place.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "material.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary_spec.h"

namespace shoal::tokenizer {

inline std::filesystem::path source_root() { return testing_material::source_tree(); }

// Reference material that is not in the repository.
inline std::filesystem::path shared_root() { return testing_material::shared(); }

inline std::filesystem::path demo_model() {
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home ? home : "") / ".cache/shoal/SmolLM2-135M-Instruct.Q4_1.gguf";
}

inline std::vector<nlohmann::json> read_jsonl(const std::filesystem::path& path) {
  std::vector<nlohmann::json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

inline std::vector<TokenId> ids_of(const nlohmann::json& list) { return list.get<std::vector<TokenId>>(); }

// Every push gives whole characters, and all of them together what decode() gives.
inline void expect_streams_like_whole(const std::shared_ptr<const Tokenizer>& tokenizer,
                                      std::span<const TokenId> ids) {
  for (const bool skip_special : {false, true}) {
    Detokenizer stream(tokenizer, skip_special);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string part = stream.push(id);
      ASSERT_TRUE(is_valid_utf8(part)) << "half a character after " << joined;
      joined += part;
    }
    joined += stream.finish();
    ASSERT_EQ(joined, tokenizer->decode(ids, skip_special));
  }
}

inline void expect_random_ids_stream_like_whole(const std::shared_ptr<const Tokenizer>& tokenizer, int runs) {
  std::mt19937 random(7);
  for (int run = 0; run < runs; ++run) {
    // Low ids are the bytes in most vocabularies: these break characters apart.
    const int top = run % 2 ? tokenizer->vocab_size() + 2 : std::min(300, tokenizer->vocab_size());
    std::vector<TokenId> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(top)));
    expect_streams_like_whole(tokenizer, ids);
  }
}

// All bytes, two merges, two control tokens.
inline VocabularySpec byte_level_spec() {
  VocabularySpec spec;
  spec.source = "toy.gguf";
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.emplace_back(byte_character(static_cast<std::uint8_t>(byte)));
  for (const char* token : {"he", "hel", "<|im_start|>", "<|im_end|>"}) spec.tokens.emplace_back(token);
  spec.types.assign(258, 1);
  spec.types.insert(spec.types.end(), {3, 3});
  spec.merges = {"h e", "he l"};
  spec.bos = 258;
  spec.eos = 259;
  return spec;
}

// SentencePiece with byte tokens: <unk>, <s>, </s>, 256 bytes, then pieces.
inline VocabularySpec scored_spec() {
  VocabularySpec spec;
  spec.source = "toy.gguf";
  spec.model = "llama";
  spec.tokens = {"<unk>", "<s>", "</s>"};
  spec.types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    spec.tokens.emplace_back(name);
    spec.types.push_back(6);
  }
  for (const char* piece : {"\u2581", "a", "b", "ab", "\u2581ab", "s", ">", "s>", "<"}) {
    spec.tokens.emplace_back(piece);
    spec.types.push_back(1);
  }
  spec.scores.assign(spec.tokens.size(), 0.0f);
  for (std::size_t i = 259; i < spec.tokens.size(); ++i) spec.scores[i] = -static_cast<float>(i);
  return spec;
}

}  // namespace shoal::tokenizer
