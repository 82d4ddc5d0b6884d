// From what a client sent to token ids: renders the chat template and encodes.
//
// Thread-safety: immutable; used on the text thread.
// Ownership: shares the tokenizer.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "wire/openai_request.h"

namespace shoal::serving {

class PromptBuilder {
 public:
  // Fails where the model's chat template does not parse. A model without one is fine: chat() then refuses.
  // context: tokens; texts that cannot fit are refused unread, with kTooLong.
  static Expected<PromptBuilder> make(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                      std::int32_t context);

  // The conversation's text as the template renders it; a `developer` message is a `system` one for templates
  // that do not know the word. The template's own complaint is the client's error (kInvalidArgument).
  Expected<std::string> render(const wire::ChatRequest& request) const;
  // render(), encoded; templates write their own begin token.
  Expected<std::vector<TokenId>> chat(const wire::ChatRequest& request) const;
  // Text gets the special tokens the model asks for; ids are checked against the vocabulary and kept.
  Expected<std::vector<TokenId>> completion(const wire::Prompt& prompt) const;

  // A text's ids; field: what to name where the text cannot fit the context.
  Expected<std::vector<TokenId>> encode(std::string_view text, bool add_special, const char* field) const;

  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  explicit PromptBuilder(std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::int32_t context_ = 0;
  std::size_t most_bytes_ = 0;
  std::optional<tokenizer::ChatTemplate> template_;
  bool knows_developer_ = false;
};

}  // namespace shoal::serving
