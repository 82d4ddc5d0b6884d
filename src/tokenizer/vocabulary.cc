#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "tokenizer/generation_ends.h"
#include "tokenizer/in_quotes.h"

namespace shoal::tokenizer {
namespace {

// Fill-in-the-middle tokens after which a model goes on to another file, where the file does not name them.
constexpr std::string_view kFimPadNames[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepositoryNames[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                                    "<reponame>"};
constexpr std::string_view kFimSeparatorNames[] = {"<|file_sep|>"};
// Parts of an answer's structure in harmony-style models, which clients must see.
constexpr std::string_view kVisibleNames[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

Status corrupt(const VocabularySpec& spec, std::string what) {
  return Status(ErrorCode::kCorrupt, spec.source + ": " + std::move(what));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool is_byte_name(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' && hex_digit(token[3]) >= 0 &&
         hex_digit(token[4]) >= 0;
}

}  // namespace

Expected<Vocabulary> Vocabulary::build(VocabularySpec spec) {
  Vocabulary vocabulary;
  SHOAL_TRY(vocabulary.check_sizes(spec));
  vocabulary.tokens_ = std::make_unique<std::vector<std::string>>(std::move(spec.tokens));
  vocabulary.scores_ = std::move(spec.scores);
  SHOAL_TRY(vocabulary.index_tokens(spec));
  SHOAL_TRY(vocabulary.set_kinds(spec));
  SHOAL_TRY(vocabulary.set_ids(spec));
  vocabulary.set_generation_ends(spec);
  vocabulary.set_family_quirks(spec);
  return vocabulary;
}

std::uint8_t Vocabulary::byte_of(TokenId id) const {
  const std::string& name = token(id);
  return static_cast<std::uint8_t>(hex_digit(name[3]) * 16 + hex_digit(name[4]));
}

std::optional<TokenId> Vocabulary::find(std::string_view token) const {
  const auto at = index_.find(token);
  return at == index_.end() ? std::nullopt : std::optional(at->second);
}

Status Vocabulary::check_sizes(const VocabularySpec& spec) const {
  const std::size_t n = spec.tokens.size();
  if (n == 0) return corrupt(spec, "the vocabulary has no tokens");
  if (n > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    return corrupt(spec, "the vocabulary has " + std::to_string(n) + " tokens, more than ids can name");
  }
  if (!spec.types.empty() && spec.types.size() != n) {
    return corrupt(spec, "tokenizer.ggml.token_type has " + std::to_string(spec.types.size()) +
                             " entries for " + std::to_string(n) + " tokens");
  }
  if (!spec.scores.empty() && spec.scores.size() != n) {
    return corrupt(spec, "tokenizer.ggml.scores has " + std::to_string(spec.scores.size()) + " entries for " +
                             std::to_string(n) + " tokens");
  }
  for (std::size_t i = 0; i < spec.scores.size(); ++i) {
    if (std::isnan(spec.scores[i]))
      return corrupt(spec, "the score of token " + std::to_string(i) + " is no number");
  }
  return {};
}

Status Vocabulary::index_tokens(const VocabularySpec& spec) {
  index_.reserve(tokens_->size() * 2);
  for (TokenId id = 0; id < size(); ++id) {
    std::string& name = (*tokens_)[id];
    if (name.empty()) name = "[EMPTY_" + std::to_string(id) + "]";
    const auto [at, fresh] = index_.emplace(name, id);
    if (!fresh) {
      return corrupt(spec, "token " + in_quotes(name) + " stands in the vocabulary twice, as " +
                               std::to_string(at->second) + " and " + std::to_string(id));
    }
  }
  return {};
}

Status Vocabulary::set_kinds(const VocabularySpec& spec) {
  kinds_.assign(tokens_->size(), kNormal);
  for (std::size_t i = 0; i < spec.types.size(); ++i) {
    switch (static_cast<TokenType>(spec.types[i])) {
      case TokenType::kUndefined:
        kinds_[i] = 0;
        break;
      case TokenType::kNormal:
        kinds_[i] = kNormal;
        break;
      case TokenType::kUnknown:
        kinds_[i] = kUnknown;
        break;
      case TokenType::kControl:
        kinds_[i] = kControl;
        break;
      case TokenType::kUserDefined:
        kinds_[i] = kUserDefined;
        break;
      case TokenType::kUnused:
        kinds_[i] = kUnused;
        break;
      case TokenType::kByte:
        if (!is_byte_name((*tokens_)[i])) {
          return corrupt(spec, "token " + std::to_string(i) + ", " + in_quotes((*tokens_)[i]) +
                                   ", is of type byte but not named like <0x0A>");
        }
        kinds_[i] = kByte;
        break;
      default:
        return corrupt(
            spec, "token " + std::to_string(i) + " has the unknown type " + std::to_string(spec.types[i]));
    }
  }
  return {};
}

Status Vocabulary::set_ids(const VocabularySpec& spec) {
  const auto check = [&](std::string_view what, std::optional<std::int64_t> value,
                         std::optional<TokenId>& out) -> Status {
    if (!value) return {};
    if (*value < 0 || *value >= size()) {
      return corrupt(spec, std::string(what) + " " + std::to_string(*value) +
                               " is outside the vocabulary of " + std::to_string(size()) + " tokens");
    }
    out = static_cast<TokenId>(*value);
    return {};
  };
  // What SentencePiece vocabularies mean where the file does not say.
  if (spec.model == "llama") {
    if (size() > 2) bos_ = 1, eos_ = 2;
    unknown_ = 0;
  }
  SHOAL_TRY(check("bos_token_id", spec.bos, bos_));
  SHOAL_TRY(check("eos_token_id", spec.eos, eos_));
  SHOAL_TRY(check("unknown_token_id", spec.unknown, unknown_));
  ends_.assign(tokens_->size(), false);
  for (const auto& [what, value] :
       {std::pair("eos_token_id", spec.eos), std::pair("eot_token_id", spec.eot),
        std::pair("eom_token_id", spec.eom), std::pair("fim_pad_token_id", spec.fim_pad),
        std::pair("fim_rep_token_id", spec.fim_repository),
        std::pair("fim_sep_token_id", spec.fim_separator)}) {
    std::optional<TokenId> id;
    SHOAL_TRY(check(what, value, id));
    if (id) ends_[*id] = true;
  }
  if (eos_) ends_[*eos_] = true;
  return {};
}

void Vocabulary::set_generation_ends(const VocabularySpec& spec) {
  const auto end_with = [&](TokenId id) {
    ends_[id] = true;
    kinds_[id] |= kControl;
  };
  for (const TokenId id : generation_ends([this](std::string_view name) { return find(name); })) end_with(id);
  const auto first_of = [&](std::optional<std::int64_t> known, std::span<const std::string_view> names) {
    if (known) return;
    for (const std::string_view name : names) {
      if (const auto id = find(name)) return end_with(*id);
    }
  };
  first_of(spec.fim_pad, kFimPadNames);
  first_of(spec.fim_repository, kFimRepositoryNames);
  first_of(spec.fim_separator, kFimSeparatorNames);
}

void Vocabulary::set_family_quirks(const VocabularySpec& spec) {
  for (const std::string_view name : kVisibleNames) {
    if (const auto id = find(name)) kinds_[*id] = kUserDefined;
  }
  // In families with other ends this one ends only one of an answer's messages, which clients must see.
  if (const auto id = find("<|end|>"); id && !ends_[*id]) kinds_[*id] = kUserDefined;
  std::string name = spec.model_name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos) {
    for (std::uint8_t& kind : kinds_) {
      if (kind & (kControl | kUserDefined | kUnknown)) kind |= kStripRight;
    }
    for (const std::string_view kept : {"<unk>", "<s>", "<|endoftext|>"}) {
      if (const auto id = find(kept)) kinds_[*id] &= static_cast<std::uint8_t>(~kStripRight);
    }
  }
}

}  // namespace shoal::tokenizer
