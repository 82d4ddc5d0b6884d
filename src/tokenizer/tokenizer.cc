#include "tokenizer/tokenizer.h"

#include <utility>

#include "formats/gguf_file.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/gguf_vocabulary.h"
#include "tokenizer/hf_tokenizer.h"

namespace shoal::tokenizer {

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) {
    return load_hf_tokenizer(model);
  }
  if (model.filename() == "tokenizer.json") return load_hf_tokenizer(model.parent_path());
  SHOAL_ASSIGN(file, formats::GgufFile::open(model));
  return load(file);
}

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::load(const formats::GgufFile& file) {
  SHOAL_ASSIGN(spec, read_vocabulary(file));
  return make_gguf_tokenizer(std::move(spec));
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  const auto stream = decode_stream(skip_special, false);
  std::string text;
  for (const TokenId id : ids) stream->push(id, text);
  stream->finish(text);
  return text;
}

std::string Tokenizer::bos_text() const { return bos() ? token_name(*bos()) : std::string(); }

std::string Tokenizer::eos_text() const { return eos() ? token_name(*eos()) : std::string(); }

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special, bool continues)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), continues_(continues) {}

std::string Detokenizer::push(TokenId id) {
  if (!stream_) stream_ = tokenizer_->decode_stream(skip_special_, continues_);
  std::string text;
  stream_->push(id, text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  if (stream_) stream_->finish(text);
  stream_.reset();
  return text;
}

}  // namespace shoal::tokenizer
