#include "tokenizer/special_tokens.h"

#include <algorithm>

namespace shoal::tokenizer {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialTokens::SpecialTokens(std::vector<SpecialToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const SpecialToken& token) { return token.text.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
  for (std::size_t i = 0; i < tokens_.size(); ++i) trie_.add(tokens_[i].text, static_cast<std::int32_t>(i));
}

std::vector<Fragment> SpecialTokens::partition(std::string_view text, bool parse_special) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({kNoToken, text});
  // Vocabularies have up to thousands of special tokens, a text has few: only those are searched for in turn.
  std::vector<std::int32_t> present;
  for (std::size_t at = 0; at < text.size(); ++at) {
    trie_.prefixes(text, at, [&](std::size_t, std::int32_t index) {
      if (parse_special || !tokens_[index].control) present.push_back(index);
    });
  }
  std::sort(present.begin(), present.end());
  present.erase(std::unique(present.begin(), present.end()), present.end());
  for (const std::int32_t index : present) {
    const SpecialToken& token = tokens_[index];
    std::vector<Fragment> next;
    next.reserve(fragments.size());
    for (const Fragment& fragment : fragments) {
      if (fragment.id != kNoToken) {
        next.push_back(fragment);
        continue;
      }
      std::string_view rest = fragment.text;
      for (std::size_t at; (at = rest.find(token.text)) != std::string_view::npos;) {
        if (at > 0) next.push_back({kNoToken, rest.substr(0, at)});
        next.push_back({token.id, {}});
        rest.remove_prefix(at + token.text.size());
        while (token.strip_right && !rest.empty() && is_ascii_space(rest.front())) rest.remove_prefix(1);
      }
      if (!rest.empty()) next.push_back({kNoToken, rest});
    }
    fragments = std::move(next);
  }
  return fragments;
}

}  // namespace shoal::tokenizer
