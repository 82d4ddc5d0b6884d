#include "tokenizer/hf_added_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Letters, digits and the underscore, and all of what is not ASCII.
bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

Expected<HfAddedTokens> HfAddedTokens::parse(JsonElement root, std::string_view source,
                                             const HfNormalizer& normalizer) {
  HfAddedTokens added;
  simdjson::dom::array list;
  if (root["added_tokens"].get(list)) return added;
  for (const JsonElement element : list) {
    AddedToken token;
    std::int64_t id = -1;
    if (element["id"].get(id) || id < 0 || id > std::numeric_limits<TokenId>::max()) {
      return hf_corrupt(source, "an added token has no valid id");
    }
    token.id = static_cast<TokenId>(id);
    token.content = json_string(element, "content");
    token.special = json_bool(element, "special", false);
    token.normalized = json_bool(element, "normalized", false);
    token.single_word = json_bool(element, "single_word", false);
    token.strip_left = json_bool(element, "lstrip", false);
    token.strip_right = json_bool(element, "rstrip", false);
    const auto index = static_cast<std::int32_t>(added.tokens_.size());
    if (token.normalized) {
      SHOAL_ASSIGN(content, normalizer.apply(token.content));
      added.normalized_.add(content, index);
    } else {
      added.raw_.add(token.content, index);
    }
    added.tokens_.push_back(std::move(token));
  }
  return added;
}

std::vector<Fragment> HfAddedTokens::split(const ByteTrie& trie, std::string_view text,
                                           bool parse_special) const {
  std::vector<Fragment> out;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    std::int32_t index = -1;
    trie.prefixes(text, at, [&](std::size_t n, std::int32_t value) { length = n, index = value; });
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    std::size_t begin = at, end = at + length;
    at = end;
    if (token.special && !parse_special) continue;
    if (token.single_word &&
        ((begin > 0 && is_word(text[begin - 1])) || (end < text.size() && is_word(text[end])))) {
      continue;
    }
    if (token.strip_left) {
      while (begin > done && is_space(text[begin - 1])) --begin;
    }
    if (token.strip_right) {
      while (end < text.size() && is_space(text[end])) ++end;
    }
    begin = std::max(begin, done);
    if (begin > done) out.push_back({kNoToken, text.substr(done, begin - done)});
    out.push_back({token.id, {}});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) out.push_back({kNoToken, text.substr(done)});
  return out;
}

}  // namespace shoal::tokenizer
