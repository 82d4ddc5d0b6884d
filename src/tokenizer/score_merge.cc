#include "tokenizer/score_merge.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>

#include "tokenizer/merge_table.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {

ScoreMerge::ScoreMerge(const Vocabulary& vocabulary)
    : scores_(vocabulary.scores()), unknown_(vocabulary.unknown().value_or(kNoToken)) {
  bytes_.fill(kNoToken);
  pieces_.reserve(static_cast<std::size_t>(vocabulary.size()) * 2);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view name = vocabulary.token(id);
    const std::uint8_t kind = vocabulary.kind(id);
    if (kind & Vocabulary::kByte) bytes_[vocabulary.byte_of(id)] = id;
    if (kind & (Vocabulary::kControl | Vocabulary::kUnknown)) continue;
    pieces_.emplace(name, id);
    longest_ = std::max(longest_, name.size());
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char self[] = {static_cast<char>(byte)};
    if (bytes_[byte] == kNoToken) bytes_[byte] = piece({self, 1});
  }
}

TokenId ScoreMerge::piece(std::string_view text) const {
  if (text.size() > longest_) return kNoToken;
  const auto at = pieces_.find(text);
  return at == pieces_.end() ? kNoToken : at->second;
}

void ScoreMerge::append_unmerged(std::string_view character, std::vector<TokenId>& out,
                                 bool& after_unknown) const {
  const bool all_bytes = std::all_of(character.begin(), character.end(), [&](char c) {
    return bytes_[static_cast<std::uint8_t>(c)] != kNoToken;
  });
  if (all_bytes) {
    for (const char c : character) out.push_back(bytes_[static_cast<std::uint8_t>(c)]);
    after_unknown = false;
  } else {
    if (!after_unknown && unknown_ != kNoToken) out.push_back(unknown_);
    after_unknown = true;
  }
}

void ScoreMerge::encode(std::string_view text, std::vector<TokenId>& out) const {
  constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
  struct Symbol {
    std::uint32_t at, length;  // bytes of text; length 0: merged into the one before
    std::uint32_t next, previous;
  };
  struct Candidate {
    float score;
    std::uint32_t left, right, length;
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
  };
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (std::uint32_t at = 0; at < text.size();) {
    const auto length = static_cast<std::uint32_t>(std::min(utf8_length(text[at]), text.size() - at));
    const auto index = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({at, length, index + 1, index > 0 ? index - 1 : kEnd});
    at += length;
  }
  if (symbols.empty()) return;
  symbols.back().next = kEnd;

  std::priority_queue<Candidate, std::vector<Candidate>, decltype(worse)> queue(worse);
  const auto consider = [&](std::uint32_t left, std::uint32_t right) {
    if (left == kEnd || right == kEnd) return;
    const std::uint32_t length = symbols[left].length + symbols[right].length;
    const TokenId id = piece(text.substr(symbols[left].at, length));
    if (id != kNoToken) queue.push({scores_[id], left, right, length});
  };
  for (std::uint32_t i = 0; i + 1 < symbols.size(); ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    Symbol& right = symbols[top.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != top.length) continue;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (right.next != kEnd) symbols[right.next].previous = top.left;
    consider(left.previous, top.left);
    consider(top.left, left.next);
  }

  bool after_unknown = false;
  for (std::uint32_t i = 0; i != kEnd; i = symbols[i].next) {
    const std::string_view symbol = text.substr(symbols[i].at, symbols[i].length);
    const TokenId id = piece(symbol);
    if (id != kNoToken) {
      out.push_back(id);
      after_unknown = false;
    } else {
      append_unmerged(symbol, out, after_unknown);
    }
  }
}

}  // namespace shoal::tokenizer
