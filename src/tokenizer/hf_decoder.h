// The decoder of a tokenizer.json: how token names become text again, token by token.
//
// Thread-safety: an HfDecoder never changes once parsed; a state belongs to one stream.
// Invariants: the texts given out by push() and finish() joined are what decoding all tokens at once gives.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {

class HfDecoder {
 public:
  HfDecoder() = default;  // names joined by spaces
  // Known types: Sequence, ByteLevel, Replace (of a string), ByteFallback, Fuse, Strip (at the start),
  // Metaspace.
  static Expected<HfDecoder> parse(JsonElement element, std::string_view source);

  // Where one stream stands; one entry for each step.
  struct StepState {
    std::string run;  // ByteFallback: the bytes of tokens like <0xE2> whose run has not ended
    std::size_t stripped = 0;
    bool done = false;  // Strip, Metaspace: past the start of the text
    Utf8Assembler assembler;
  };
  struct State {
    std::vector<StepState> steps;
    bool first = true;
  };
  // continues: the text goes on from an earlier one, so nothing is stripped from its start.
  State start(bool continues) const;
  void push(State& state, std::string_view token, std::string& out) const;
  void finish(State& state, std::string& out) const;

  // The bytes of one token by itself.
  std::string piece(std::string_view token) const;

 private:
  enum class Kind { kByteLevel, kReplace, kByteFallback, kFuse, kStrip, kMetaspace };
  struct Step {
    Kind kind;
    std::string pattern, content;
    std::size_t count = 0;
    bool fused = false;  // a Fuse stands before this step: tokens are parts of one text
  };
  Status add(JsonElement element, std::string_view source, int depth);
  void feed(State& state, std::size_t step, std::string token, std::string& out) const;
  void flush_run(State& state, std::size_t step, std::string& out) const;
  static std::string strip(const Step& step, StepState& state, std::string token);

  std::vector<Step> steps_;
  bool join_with_spaces_ = true;
};

}  // namespace shoal::tokenizer
