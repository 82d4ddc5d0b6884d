#include "serving/answer_format.h"

#include <utility>

namespace shoal::serving {
namespace {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(wire::AnswerId answer, bool include_usage)
      : answer_(std::move(answer)), stream_(answer_, include_usage) {}

  void begin(int choice, std::string& out) override { stream_.role(choice, out); }
  void piece(int choice, const Piece& piece, std::string& out) override {
    stream_.content(choice, piece.text, piece.logprobs, out);
  }
  void finish(int choice, wire::FinishReason reason, std::string_view matched_stop,
              std::string& out) override {
    stream_.finish(choice, reason, matched_stop, out);
  }
  void usage(const wire::TokenUsage& usage, std::string& out) override { stream_.usage(usage, out); }
  void resume(int, int) override {}
  std::string whole(const std::vector<wire::FinishedChoice>& choices,
                    const wire::TokenUsage& usage) override {
    return wire::chat_completion(answer_, choices, usage);
  }

 private:
  wire::AnswerId answer_;
  wire::ChatStream stream_;
};

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(wire::AnswerId answer, bool include_usage, int choices)
      : answer_(std::move(answer)),
        stream_(answer_, include_usage),
        offsets_(static_cast<std::size_t>(choices), 0) {}

  void begin(int, std::string&) override {}
  void piece(int choice, const Piece& piece, std::string& out) override {
    stream_.text(choice, piece.text, piece.logprobs, offsets_[static_cast<std::size_t>(choice)], out);
  }
  void finish(int choice, wire::FinishReason reason, std::string_view matched_stop,
              std::string& out) override {
    stream_.finish(choice, reason, matched_stop, out);
  }
  void usage(const wire::TokenUsage& usage, std::string& out) override { stream_.usage(usage, out); }
  void resume(int choice, int characters) override {
    offsets_[static_cast<std::size_t>(choice)] = characters;
  }
  std::string whole(const std::vector<wire::FinishedChoice>& choices,
                    const wire::TokenUsage& usage) override {
    return wire::text_completion(answer_, choices, usage);
  }

 private:
  wire::AnswerId answer_;
  wire::CompletionStream stream_;
  std::vector<int> offsets_;  // text_offset of each choice's next piece
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(wire::AnswerId answer, bool include_usage) {
  return std::make_unique<ChatFormat>(std::move(answer), include_usage);
}

std::unique_ptr<AnswerFormat> make_completion_format(wire::AnswerId answer, bool include_usage, int choices) {
  return std::make_unique<CompletionFormat>(std::move(answer), include_usage, choices);
}

}  // namespace shoal::serving
