#include "tokenizer/hf_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/generation_ends.h"
#include "tokenizer/hf_added_tokens.h"
#include "tokenizer/hf_bpe.h"
#include "tokenizer/hf_config.h"
#include "tokenizer/hf_decoder.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/hf_normalizer.h"
#include "tokenizer/hf_pretokenizer.h"
#include "tokenizer/in_quotes.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

// A document keeps the parser and the text it points into.
class JsonFile {
 public:
  static Expected<std::unique_ptr<JsonFile>> parse(std::string_view text, const std::string& source) {
    auto file = std::make_unique<JsonFile>();
    if (const auto error = file->parser_.parse(text.data(), text.size()).get(file->root_)) {
      return hf_corrupt(source, std::string("is not valid JSON: ") + simdjson::error_message(error));
    }
    return file;
  }
  JsonElement root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  JsonElement root_;
};

// What stands around the text of one input.
struct Template {
  std::vector<TokenId> before, after;
};

class HfTokenizer;

class HfDecodeStream final : public DecodeStream {
 public:
  HfDecodeStream(const HfTokenizer& tokenizer, bool skip_special, bool continues);
  void push(TokenId id, std::string& out) override;
  void finish(std::string& out) override;

 private:
  const HfTokenizer& tokenizer_;
  bool skip_special_;
  HfDecoder::State state_;
};

class HfTokenizer final : public Tokenizer {
 public:
  static Expected<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& folder) {
    SHOAL_ASSIGN(text, read_text_file(folder / "tokenizer.json"));
    SHOAL_ASSIGN(config, read_hf_config(folder));
    return parse(text, (folder / "tokenizer.json").string(), std::move(config));
  }

  static Expected<std::shared_ptr<const Tokenizer>> parse(std::string_view text, const std::string& source,
                                                          HfConfig config) {
    SHOAL_ASSIGN(file, JsonFile::parse(text, source));
    auto tokenizer = std::make_shared<HfTokenizer>();
    SHOAL_TRY(tokenizer->read_pipeline(file->root(), source));
    SHOAL_TRY(tokenizer->read_names(source));
    SHOAL_TRY(tokenizer->read_template(file->root(), source));
    tokenizer->apply_configuration(std::move(config));
    return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
  }

  Expected<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override {
    std::string repaired;
    if (!is_valid_utf8(text)) text = repaired = to_valid_utf8(text);
    std::vector<TokenId> ids;
    if (options.add_special) ids = template_.before;
    bool first = true;
    for (const Fragment& fragment : added_.split_raw(text, options.parse_special)) {
      if (fragment.id != kNoToken) {
        ids.push_back(fragment.id);
      } else {
        SHOAL_TRY(encode_text(fragment.text, first, options.parse_special, ids));
      }
      first = false;
    }
    if (options.add_special) ids.insert(ids.end(), template_.after.begin(), template_.after.end());
    return ids;
  }

  std::unique_ptr<DecodeStream> decode_stream(bool skip_special, bool continues) const override {
    return std::make_unique<HfDecodeStream>(*this, skip_special, continues);
  }

  std::string piece(TokenId id) const override {
    if (!known(id)) return {};
    return is_added_[id] ? names_[id] : decoder_.piece(names_[id]);
  }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(names_.size()); }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  bool is_end_of_generation(TokenId id) const override { return known(id) && ends_[id]; }
  bool add_bos() const override {
    return bos_ &&
           std::find(template_.before.begin(), template_.before.end(), *bos_) != template_.before.end();
  }
  bool is_special(TokenId id) const override { return known(id) && special_[id]; }
  std::optional<TokenId> find(std::string_view token) const override {
    for (const AddedToken& added : added_.tokens()) {
      if (added.content == token) return added.id;
    }
    return model_.find(token);
  }
  std::string token_name(TokenId id) const override { return known(id) ? names_[id] : std::string(); }
  const std::string& chat_template() const override { return chat_template_; }
  bool cleans_up_spaces() const override { return false; }

  // Ids between the model's and the added tokens' may have no name.
  bool known(TokenId id) const { return id >= 0 && id < vocab_size() && !names_[id].empty(); }
  const std::string& name(TokenId id) const { return names_[id]; }
  const HfDecoder& decoder() const { return decoder_; }

 private:
  Status read_pipeline(JsonElement root, std::string_view source) {
    JsonElement part;
    if (json_has(root, "normalizer") && !root["normalizer"].get(part)) {
      SHOAL_ASSIGN(normalizer, HfNormalizer::parse(part, source));
      normalizer_ = std::move(normalizer);
    }
    if (json_has(root, "pre_tokenizer") && !root["pre_tokenizer"].get(part)) {
      SHOAL_ASSIGN(pretokenizer, HfPretokenizer::parse(part, source));
      pretokenizer_ = std::move(pretokenizer);
    }
    if (json_has(root, "decoder") && !root["decoder"].get(part)) {
      SHOAL_ASSIGN(decoder, HfDecoder::parse(part, source));
      decoder_ = std::move(decoder);
    }
    SHOAL_ASSIGN(added, HfAddedTokens::parse(root, source, normalizer_));
    added_ = std::move(added);
    if (root["model"].get(part)) return hf_corrupt(source, "has no model");
    SHOAL_ASSIGN(model, HfBpe::parse(part, source, pretokenizer_.byte_level()));
    model_ = std::move(model);
    return {};
  }

  Status read_names(std::string_view source) {
    std::size_t size = 0;
    std::size_t count = model_.vocabulary().size() + added_.tokens().size();
    for (const auto& [name, id] : model_.vocabulary())
      size = std::max(size, static_cast<std::size_t>(id) + 1);
    for (const AddedToken& token : added_.tokens())
      size = std::max(size, static_cast<std::size_t>(token.id) + 1);
    // Holes are common (room for later tokens), ids far beyond the tokens are not.
    if (size > count * 4 + 65536) {
      return hf_corrupt(source, "token id " + std::to_string(size - 1) + " in a vocabulary of " +
                                    std::to_string(count) + " tokens");
    }
    names_.resize(size);
    special_.resize(size);
    is_added_.resize(size);
    ends_.resize(size);
    for (const auto& [name, id] : model_.vocabulary()) names_[id] = name;
    for (const AddedToken& token : added_.tokens()) {
      names_[token.id] = token.content;
      special_[token.id] = token.special;
      is_added_[token.id] = true;
    }
    return {};
  }

  Status read_template(JsonElement root, std::string_view source) {
    JsonElement processor;
    if (!json_has(root, "post_processor") || root["post_processor"].get(processor)) return {};
    if (json_string(processor, "type") != "Sequence") return add_processor(processor, source);
    simdjson::dom::array parts;
    if (processor["processors"].get(parts))
      return hf_corrupt(source, "post_processor Sequence has no processors");
    for (const JsonElement part : parts) SHOAL_TRY(add_processor(part, source));
    return {};
  }

  Status add_processor(JsonElement processor, std::string_view source) {
    const std::string type = json_string(processor, "type");
    if (type == "ByteLevel") return {};  // moves offsets only
    if (type == "BertProcessing" || type == "RobertaProcessing") return add_pair(processor, type, source);
    if (type != "TemplateProcessing") {
      return hf_unsupported(source, "post-processor " + in_quotes(type) +
                                        " is not supported; known: Sequence, ByteLevel, TemplateProcessing, "
                                        "BertProcessing, RobertaProcessing");
    }
    simdjson::dom::array items;
    if (processor["single"].get(items)) return hf_corrupt(source, "TemplateProcessing has no single");
    bool after = false;
    for (const JsonElement item : items) {
      JsonElement special;
      if (item["SpecialToken"].get(special)) {
        after = true;
        continue;
      }
      const std::string name = json_string(special, "id");
      simdjson::dom::array ids;
      if (processor["special_tokens"].at_key(name)["ids"].get(ids)) {
        return hf_corrupt(source,
                          "TemplateProcessing says nothing about its special token " + in_quotes(name));
      }
      for (const JsonElement element : ids) {
        std::int64_t id = -1;
        if (element.get(id) || id < 0 || id >= vocab_size()) {
          return hf_corrupt(source, "TemplateProcessing names an id outside the vocabulary");
        }
        (after ? template_.after : template_.before).push_back(static_cast<TokenId>(id));
      }
    }
    return {};
  }

  // "cls" before the text and "sep" after it, each a token and its id.
  Status add_pair(JsonElement processor, const std::string& type, std::string_view source) {
    for (const auto& [key, ids] : {std::pair{"cls", &template_.before}, {"sep", &template_.after}}) {
      std::int64_t id = -1;
      if (processor[key].at(1).get(id) || id < 0 || id >= vocab_size())
        return hf_corrupt(source, type + " has no " + key + " with an id of the vocabulary");
      ids->push_back(static_cast<TokenId>(id));
    }
    return {};
  }

  void apply_configuration(HfConfig config) {
    if (config.bos) bos_ = find(*config.bos);
    if (config.eos) eos_ = find(*config.eos);
    if (!bos_ && !template_.before.empty()) bos_ = template_.before.front();
    chat_template_ = std::move(config.chat_template);
    if (eos_) ends_[*eos_] = true;
    for (const std::int64_t id : config.ends) {
      if (id >= 0 && id < vocab_size()) ends_[id] = true;
    }
    for (const TokenId id : generation_ends([this](std::string_view name) { return find(name); })) {
      if (special_[id]) ends_[id] = true;
    }
  }

  Status encode_text(std::string_view raw, bool first, bool parse_special, std::vector<TokenId>& ids) const {
    std::string normalized;
    if (!normalizer_.empty()) {
      SHOAL_ASSIGN(text, normalizer_.apply(raw));
      normalized = std::move(text);
      raw = normalized;
    }
    for (const Fragment& fragment : added_.split_normalized(raw, parse_special)) {
      if (fragment.id != kNoToken) {
        ids.push_back(fragment.id);
      } else {
        SHOAL_ASSIGN(words, pretokenizer_.split(fragment.text, first));
        for (const std::string_view word : words.views) model_.encode(word, ids);
      }
      first = false;
    }
    return {};
  }

  HfNormalizer normalizer_;
  HfPretokenizer pretokenizer_;
  HfAddedTokens added_;
  HfBpe model_;
  HfDecoder decoder_;
  Template template_;
  std::vector<std::string> names_;  // by id; empty: no such token
  std::vector<bool> special_, is_added_, ends_;
  std::optional<TokenId> bos_, eos_;
  std::string chat_template_;
};

HfDecodeStream::HfDecodeStream(const HfTokenizer& tokenizer, bool skip_special, bool continues)
    : tokenizer_(tokenizer), skip_special_(skip_special), state_(tokenizer.decoder().start(continues)) {}

void HfDecodeStream::push(TokenId id, std::string& out) {
  if (!tokenizer_.known(id) || (skip_special_ && tokenizer_.is_special(id))) return;
  tokenizer_.decoder().push(state_, tokenizer_.name(id), out);
}

void HfDecodeStream::finish(std::string& out) { tokenizer_.decoder().finish(state_, out); }

}  // namespace

Expected<std::shared_ptr<const Tokenizer>> load_hf_tokenizer(const std::filesystem::path& folder) {
  return HfTokenizer::load(folder);
}

Expected<std::shared_ptr<const Tokenizer>> parse_hf_tokenizer(std::string_view text,
                                                              const std::string& source) {
  return HfTokenizer::parse(text, source, {});
}

}  // namespace shoal::tokenizer
