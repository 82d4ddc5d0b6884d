// A tokenizer for tests: id i is a short text of its own, id 0 ends an answer. Some ids carry half a
// character.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace shoal::engine {

class FakeTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit FakeTokenizer(std::int32_t vocabulary = 64) : vocabulary_(vocabulary) {}

  // Ids 1.. are "a", "b", ... "z", then "aa", "bb" and so on; the last two are the halves of "é".
  std::string piece(TokenId id) const override {
    if (id <= 0 || id >= vocabulary_) return id == 0 ? "<end>" : "";
    if (id == vocabulary_ - 2) return "\xc3";
    if (id == vocabulary_ - 1) return "\xa9";
    return std::string(static_cast<std::size_t>((id - 1) / 26 + 1), static_cast<char>('a' + (id - 1) % 26));
  }
  Expected<std::vector<TokenId>> encode(std::string_view text, tokenizer::EncodeOptions) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(c - 'a' + 1);
    return ids;
  }
  std::unique_ptr<tokenizer::DecodeStream> decode_stream(bool skip_special, bool) const override {
    return std::make_unique<Stream>(*this, skip_special);
  }
  int32_t vocab_size() const override { return vocabulary_; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return 0; }
  bool is_end_of_generation(TokenId id) const override { return id == 0; }
  bool add_bos() const override { return false; }
  bool is_special(TokenId id) const override { return id == 0; }
  std::optional<TokenId> find(std::string_view) const override { return std::nullopt; }
  std::string token_name(TokenId id) const override { return piece(id); }
  bool cleans_up_spaces() const override { return false; }
  const std::string& chat_template() const override { return template_; }

 private:
  class Stream final : public tokenizer::DecodeStream {
   public:
    Stream(const FakeTokenizer& tokenizer, bool skip_special)
        : tokenizer_(tokenizer), skip_special_(skip_special) {}
    void push(TokenId id, std::string& out) override {
      if (skip_special_ && id == 0) return;
      held_ += tokenizer_.piece(id);
      if (held_ == "\xc3") return;
      // A lone half is no character.
      if (held_.size() > 1 && held_[0] == '\xc3' && held_[1] != '\xa9') held_.replace(0, 1, "\xef\xbf\xbd");
      if (held_[0] == '\xa9') held_.replace(0, 1, "\xef\xbf\xbd");
      out += held_;
      held_.clear();
    }
    void finish(std::string& out) override {
      if (!held_.empty()) out += "\xef\xbf\xbd";
      held_.clear();
    }

   private:
    const FakeTokenizer& tokenizer_;
    bool skip_special_;
    std::string held_;
  };

  std::int32_t vocabulary_;
  std::string template_;
};

}  // namespace shoal::engine
