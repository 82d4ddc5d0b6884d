#include "tokenizer/gguf_tokenizer.h"

#include <array>
#include <unordered_map>
#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/in_quotes.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/pretokenizers.h"
#include "tokenizer/regex_split.h"
#include "tokenizer/score_merge.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace shoal::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";  // what SentencePiece writes a space as

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos;
       text.remove_prefix(at + from.size())) {
    out += text.substr(0, at);
    out += to;
  }
  out += text;
  return out;
}

// Plain text to ids: the part in which the two models differ.
class TextModel {
 public:
  virtual ~TextModel() = default;
  // first: nothing, or a special token, stands before this text.
  virtual Status encode(std::string_view text, bool first, std::vector<TokenId>& out) const = 0;
};

class ByteLevelModel final : public TextModel {
 public:
  static Expected<std::unique_ptr<TextModel>> build(const Vocabulary& vocabulary, const VocabularySpec& spec,
                                                    PreTokenizer pre) {
    SHOAL_ASSIGN(splitter, RegexSplitter::compile(pre.patterns));
    auto model = std::unique_ptr<ByteLevelModel>(new ByteLevelModel(std::move(splitter), spec.merges.size()));
    for (int byte = 0; byte < 256; ++byte) {
      model->bytes_[byte] =
          vocabulary.find(byte_character(static_cast<std::uint8_t>(byte))).value_or(kNoToken);
    }
    SHOAL_TRY(model->add_merges(vocabulary, spec));
    if (pre.ignore_merges) {
      for (TokenId id = 0; id < vocabulary.size(); ++id) {
        if (!(vocabulary.kind(id) & Vocabulary::kNormal)) continue;
        if (auto word = decode_byte_level_strict(vocabulary.token(id)))
          model->words_.emplace(std::move(*word), id);
      }
    }
    return std::unique_ptr<TextModel>(std::move(model));
  }

  Status encode(std::string_view text, bool, std::vector<TokenId>& out) const override {
    SHOAL_ASSIGN(words, splitter_.split(text));
    std::vector<TokenId> symbols;
    for (const std::string_view word : words) {
      if (!words_.empty()) {
        if (const auto whole = words_.find(std::string(word)); whole != words_.end()) {
          out.push_back(whole->second);
          continue;
        }
      }
      symbols.clear();
      for (const char c : word) symbols.push_back(bytes_[static_cast<std::uint8_t>(c)]);
      merges_.merge(symbols);
      for (const TokenId id : symbols) {
        if (id != kNoToken) out.push_back(id);  // a byte the vocabulary lacks has no id to stand for it
      }
    }
    return {};
  }

 private:
  ByteLevelModel(RegexSplitter splitter, std::size_t merges)
      : splitter_(std::move(splitter)), merges_(merges) {}

  Status add_merges(const Vocabulary& vocabulary, const VocabularySpec& spec) {
    std::int32_t rank = 0;
    for (const std::string& merge : spec.merges) {
      const std::size_t space = merge.empty() ? std::string::npos : merge.find(' ', 1);
      const auto bad = [&](std::string_view why) {
        return Status(ErrorCode::kCorrupt, spec.source + ": merge " + std::to_string(rank) + ", " +
                                               in_quotes(merge, 60) + ", " + std::string(why));
      };
      if (space == std::string::npos || space + 1 == merge.size())
        return bad("is not two tokens and a space");
      const std::string_view left = std::string_view(merge).substr(0, space);
      const std::string_view right = std::string_view(merge).substr(space + 1);
      const auto left_id = vocabulary.find(left);
      const auto right_id = vocabulary.find(right);
      const auto result = vocabulary.find(std::string(left) + std::string(right));
      if (!left_id || !right_id) return bad("names a token that is not in the vocabulary");
      if (!result) return bad("makes a token that is not in the vocabulary");
      merges_.add(*left_id, *right_id, rank++, *result);
    }
    return {};
  }

  RegexSplitter splitter_;
  MergeTable merges_;
  std::array<TokenId, 256> bytes_{};
  std::unordered_map<std::string, TokenId>
      words_;  // by their bytes; filled where a whole word wins over merges
};

class SentencePieceModel final : public TextModel {
 public:
  SentencePieceModel(const Vocabulary& vocabulary, bool space_prefix)
      : merge_(vocabulary), space_prefix_(space_prefix) {}

  Status encode(std::string_view text, bool first, std::vector<TokenId>& out) const override {
    std::string marked;
    if (space_prefix_ && first) marked = kSpaceMark;
    marked += replace_all(text, " ", kSpaceMark);
    merge_.encode(marked, out);
    return {};
  }

 private:
  ScoreMerge merge_;
  bool space_prefix_;
};

class GgufTokenizer;

class GgufDecodeStream final : public DecodeStream {
 public:
  GgufDecodeStream(const GgufTokenizer& tokenizer, bool skip_special, bool strip_space)
      : tokenizer_(tokenizer), skip_special_(skip_special), strip_space_(strip_space) {}
  void push(TokenId id, std::string& out) override;
  void finish(std::string& out) override { assembler_.finish(out); }

 private:
  const GgufTokenizer& tokenizer_;
  bool skip_special_;
  bool strip_space_;  // the next visible token begins with the space that encode() put there
  Utf8Assembler assembler_;
};

class GgufTokenizer final : public Tokenizer {
 public:
  GgufTokenizer(Vocabulary vocabulary, std::string chat_template)
      : vocabulary_(std::move(vocabulary)), chat_template_(std::move(chat_template)) {}

  Status init(const VocabularySpec& spec) {
    if (spec.model == "gpt2") {
      SHOAL_TRY(init_byte_level(spec));
    } else if (spec.model == "llama") {
      if (vocabulary_.scores().empty()) {
        return Status(ErrorCode::kCorrupt,
                      spec.source + ": has no tokenizer.ggml.scores, which its model needs");
      }
      space_prefix_ = spec.add_space_prefix.value_or(true);
      add_bos_ = spec.add_bos.value_or(true);
      model_ = std::make_unique<SentencePieceModel>(vocabulary_, space_prefix_);
    } else {
      return Status(ErrorCode::kUnsupported, spec.source + ": unknown tokenizer model " +
                                                 in_quotes(spec.model) + "; known: gpt2, llama");
    }
    add_eos_ = spec.add_eos.value_or(false);
    if (add_bos_ && !bos()) return missing(spec, "add_bos_token", "bos_token_id");
    if (add_eos_ && !eos()) return missing(spec, "add_eos_token", "eos_token_id");
    make_pieces(spec.model == "gpt2");
    make_special_tokens();
    return {};
  }

  Expected<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override {
    std::string repaired;
    if (!is_valid_utf8(text)) {
      repaired = to_valid_utf8(text);
      text = repaired;
    }
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 3 + 2);
    if (options.add_special && add_bos_) ids.push_back(*bos());
    bool first = true;
    for (const Fragment& fragment : special_.partition(text, options.parse_special)) {
      if (fragment.id != kNoToken) {
        ids.push_back(fragment.id);
      } else {
        SHOAL_TRY(model_->encode(fragment.text, first, ids));
      }
      first = fragment.id != kNoToken;
    }
    if (options.add_special && add_eos_) ids.push_back(*eos());
    return ids;
  }

  std::unique_ptr<DecodeStream> decode_stream(bool skip_special, bool continues) const override {
    return std::make_unique<GgufDecodeStream>(*this, skip_special, space_prefix_ && !continues);
  }

  std::string piece(TokenId id) const override {
    return vocabulary_.contains(id) ? pieces_[id] : std::string();
  }
  std::string_view piece_view(TokenId id) const {
    return vocabulary_.contains(id) ? std::string_view(pieces_[id]) : std::string_view();
  }
  std::int32_t vocab_size() const override { return vocabulary_.size(); }
  std::optional<TokenId> bos() const override { return vocabulary_.bos(); }
  std::optional<TokenId> eos() const override { return vocabulary_.eos(); }
  bool is_end_of_generation(TokenId id) const override { return vocabulary_.ends_generation(id); }
  bool add_bos() const override { return add_bos_; }
  bool is_special(TokenId id) const override {
    return vocabulary_.contains(id) && (vocabulary_.kind(id) & (Vocabulary::kControl | Vocabulary::kUnknown));
  }
  std::optional<TokenId> find(std::string_view token) const override { return vocabulary_.find(token); }
  std::string token_name(TokenId id) const override {
    return vocabulary_.contains(id) ? vocabulary_.token(id) : std::string();
  }
  const std::string& chat_template() const override { return chat_template_; }
  bool cleans_up_spaces() const override { return cleans_spaces_; }

 private:
  static Status missing(const VocabularySpec& spec, std::string_view flag, std::string_view id) {
    return Status(ErrorCode::kCorrupt, spec.source + ": tokenizer.ggml." + std::string(flag) +
                                           " is true but tokenizer.ggml." + std::string(id) + " is missing");
  }

  Status init_byte_level(const VocabularySpec& spec) {
    const auto pre = find_pretokenizer(spec.pre);
    if (!pre.ok()) return Status(pre.error().code(), spec.source + ": " + pre.error().message());
    if (spec.merges.empty())
      return Status(ErrorCode::kCorrupt, spec.source + ": has no tokenizer.ggml.merges");
    SHOAL_ASSIGN(model, ByteLevelModel::build(vocabulary_, spec, *pre));
    model_ = std::move(model);
    add_bos_ = spec.add_bos.value_or(pre->add_bos);
    cleans_spaces_ = pre->cleans_spaces;
    return {};
  }

  // What each token leaves in a text. Unused and undefined tokens leave nothing.
  void make_pieces(bool byte_level) {
    pieces_.resize(static_cast<std::size_t>(vocabulary_.size()));
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const std::uint8_t kind = vocabulary_.kind(id);
      const std::string& name = vocabulary_.token(id);
      if (kind & (Vocabulary::kControl | Vocabulary::kUnknown | Vocabulary::kUserDefined)) {
        pieces_[id] = name;
      } else if (kind & Vocabulary::kNormal) {
        pieces_[id] = byte_level ? decode_byte_level(name) : replace_all(name, kSpaceMark, " ");
      } else if (kind & Vocabulary::kByte) {
        pieces_[id] = std::string(1, static_cast<char>(vocabulary_.byte_of(id)));
      }
    }
  }

  void make_special_tokens() {
    std::vector<SpecialToken> tokens;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const std::uint8_t kind = vocabulary_.kind(id);
      const bool control = kind & (Vocabulary::kControl | Vocabulary::kUnknown);
      if (control || (kind & Vocabulary::kUserDefined)) {
        tokens.push_back({vocabulary_.token(id), id, control, (kind & Vocabulary::kStripRight) != 0});
      }
    }
    special_ = SpecialTokens(std::move(tokens));
  }

  Vocabulary vocabulary_;
  std::string chat_template_;
  std::vector<std::string> pieces_;  // by id
  SpecialTokens special_;
  std::unique_ptr<TextModel> model_;
  bool space_prefix_ = false;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool cleans_spaces_ = false;
};

void GgufDecodeStream::push(TokenId id, std::string& out) {
  if (skip_special_ && tokenizer_.is_special(id)) return;
  std::string_view piece = tokenizer_.piece_view(id);
  if (strip_space_ && piece.starts_with(' ')) piece.remove_prefix(1);
  strip_space_ = false;
  assembler_.push(piece, out);
}

}  // namespace

Expected<std::shared_ptr<const Tokenizer>> make_gguf_tokenizer(VocabularySpec spec) {
  VocabularySpec rest;  // what is left to read once the vocabulary took its arrays
  rest.source = spec.source;
  rest.model = spec.model;
  rest.pre = spec.pre;
  rest.merges = std::move(spec.merges);
  rest.add_bos = spec.add_bos;
  rest.add_eos = spec.add_eos;
  rest.add_space_prefix = spec.add_space_prefix;
  std::string chat_template = std::move(spec.chat_template);
  SHOAL_ASSIGN(vocabulary, Vocabulary::build(std::move(spec)));
  auto tokenizer = std::make_shared<GgufTokenizer>(std::move(vocabulary), std::move(chat_template));
  SHOAL_TRY(tokenizer->init(rest));
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

}  // namespace shoal::tokenizer
