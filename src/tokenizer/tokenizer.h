// A model's tokenizer: text to token ids and back, and what the vocabulary says about itself.
//
// Thread-safety: a Tokenizer never changes after load; any thread may call any member. A Detokenizer belongs
//   to one output stream and one thread at a time.
// Ownership: a Tokenizer owns its vocabulary and keeps nothing of the file it came from. A Detokenizer keeps
//   its tokenizer alive.
// Invariants:
//   1. decode() and Detokenizer give valid UTF-8 for any ids: bytes that can no longer become a character
//      come out as U+FFFD. Ids outside the vocabulary decode to nothing.
//   2. The texts of all Detokenizer::push calls and finish() joined equal decode() of the same ids.
//   3. encode() accepts any bytes: what is not UTF-8 is encoded as U+FFFD, one for each broken sequence.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"

namespace shoal::formats {
class GgufFile;
}

namespace shoal::tokenizer {

struct EncodeOptions {
  bool add_special = false;   // begin and end tokens as the model's metadata says
  bool parse_special = true;  // control tokens written in the text become their ids; else they are plain text
};

// The text of a stream of ids, one id at a time. Made by a Tokenizer.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  // Appends the text that this token completes. Never half a character.
  virtual void push(TokenId id, std::string& out) = 0;
  // Appends what was held back; the stream is over.
  virtual void finish(std::string& out) = 0;
};

class Tokenizer {
 public:
  // model: a GGUF file (one with a vocabulary only will do), or a folder with tokenizer.json. The error names
  // the file and what is wrong with it.
  static Expected<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& model);
  // The vocabulary of an open GGUF file, so that a model's file is read once.
  static Expected<std::shared_ptr<const Tokenizer>> load(const formats::GgufFile& file);

  virtual ~Tokenizer() = default;

  // Fails with kExhausted where a pre-tokenizer's pattern exceeds its work limit on this text.
  virtual Expected<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const = 0;
  // skip_special: control tokens leave no text.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;
  // continues: the ids go on where an earlier text ended, so a space that encode() puts before the first word
  // of a text is not taken for one. The stream must not outlive the tokenizer.
  virtual std::unique_ptr<DecodeStream> decode_stream(bool skip_special, bool continues) const = 0;

  // The bytes one token stands for within a text, possibly not UTF-8; control tokens give their name. Empty
  // for an id outside the vocabulary.
  virtual std::string piece(TokenId id) const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  // True for every token that ends an answer: end of sequence, of turn, of message.
  virtual bool is_end_of_generation(TokenId id) const = 0;
  // Whether add_special puts bos() before the text.
  virtual bool add_bos() const = 0;
  virtual bool is_special(TokenId id) const = 0;
  // The id of a token by its name in the vocabulary, e.g. "<|im_end|>".
  virtual std::optional<TokenId> find(std::string_view token) const = 0;
  // A token as it is named in the vocabulary; empty for an id outside it.
  virtual std::string token_name(TokenId id) const = 0;
  // Jinja source; empty where the model has none.
  virtual const std::string& chat_template() const = 0;
  // Names of bos() and eos(), for templates; empty where there is none.
  std::string bos_text() const;
  std::string eos_text() const;
  // Whether the family's reference decoder removes spaces before punctuation (clean_up_spaces.h). decode()
  // never does: it would change program text.
  virtual bool cleans_up_spaces() const = 0;
};

// Incremental decoding for one output stream.
class Detokenizer {
 public:
  // continues: see Tokenizer::decode_stream; for answers that go on with the text of a raw prompt.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special, bool continues = false);

  // The text that this token completes; empty while a character is incomplete.
  std::string push(TokenId id);
  // What is still held back. The next push starts a new text.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool continues_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace shoal::tokenizer
