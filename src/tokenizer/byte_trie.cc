#include "tokenizer/byte_trie.h"

namespace shoal::tokenizer {

void ByteTrie::add(std::string_view text, std::int32_t value) {
  if (text.empty()) return;
  std::int32_t node = 0;
  for (const char byte : text) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({byte, -1, -1, nodes_[node].first_child});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  nodes_[node].value = value;
}

}  // namespace shoal::tokenizer
