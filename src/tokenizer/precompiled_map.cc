#include "tokenizer/precompiled_map.h"

#include <cstddef>
#include <cstring>

namespace shoal::tokenizer {
namespace {

// One unit of a double array (Darts): a label or a value, an offset to the children, whether a value follows.
constexpr bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffffU; }
constexpr std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000ffU; }
constexpr std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

Expected<PrecompiledMap> PrecompiledMap::parse(std::string_view bytes) {
  std::uint32_t size = 0;
  if (bytes.size() < sizeof(size)) return Status(ErrorCode::kCorrupt, "precompiled_charsmap is too short");
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  if (size > bytes.size() || size % sizeof(std::uint32_t) != 0 || size == 0)
    return Status(ErrorCode::kCorrupt, "precompiled_charsmap is shorter than its trie");
  PrecompiledMap map;
  map.trie_.resize(size / sizeof(std::uint32_t));
  std::memcpy(map.trie_.data(), bytes.data(), size);
  map.texts_ = bytes.substr(size);
  return map;
}

std::optional<std::string_view> PrecompiledMap::find(std::string_view text) const {
  std::uint32_t node = offset_of(trie_[0]);
  for (const char c : text) {
    const auto label = static_cast<std::uint8_t>(c);
    node ^= label;
    if (label == 0 || node >= trie_.size()) return std::nullopt;
    const std::uint32_t unit = trie_[node];
    if (label_of(unit) != label) return std::nullopt;
    node ^= offset_of(unit);
    if (node >= trie_.size()) return std::nullopt;
    if (!has_value(unit)) continue;
    const std::size_t at = value_of(trie_[node]);
    if (at >= texts_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(texts_).substr(at);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held & 0xff);
  }
  return out;
}

}  // namespace shoal::tokenizer
