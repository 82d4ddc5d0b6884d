// How one HTTP answer is written: chat completions and text completions say the same things in different
// shapes.
//
// Thread-safety: one answer, one thread at a time.
// Ownership: a format owns what it repeats in every chunk.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wire/openai_response.h"

namespace shoal::serving {

// Text of one choice with, where asked for, the log-probabilities of its tokens.
struct Piece {
  std::string_view text;
  const std::vector<wire::TokenLogprobs>* logprobs = nullptr;
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Stream events, appended to out. begin: before the first piece of a choice.
  virtual void begin(int choice, std::string& out) = 0;
  virtual void piece(int choice, const Piece& piece, std::string& out) = 0;
  virtual void finish(int choice, wire::FinishReason reason, std::string_view matched_stop,
                      std::string& out) = 0;
  virtual void usage(const wire::TokenUsage& usage, std::string& out) = 0;
  // Another worker has sent so many characters of the choice, as its tokens' log-probabilities count them.
  virtual void resume(int choice, int characters) = 0;

  // The answer of a request that does not stream.
  virtual std::string whole(const std::vector<wire::FinishedChoice>& choices,
                            const wire::TokenUsage& usage) = 0;
};

std::unique_ptr<AnswerFormat> make_chat_format(wire::AnswerId answer, bool include_usage);
// choices: prompts times n.
std::unique_ptr<AnswerFormat> make_completion_format(wire::AnswerId answer, bool include_usage, int choices);

}  // namespace shoal::serving
