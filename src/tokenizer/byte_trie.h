// A set of byte strings with a number each, searched from a position of a text.
//
// Thread-safety: none while adding; once built, any thread may search.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace shoal::tokenizer {

class ByteTrie {
 public:
  ByteTrie() : nodes_(1) {}

  // The last value given for a text stays. An empty text is never found.
  void add(std::string_view text, std::int32_t value);

  // Calls visit(length, value) for every string that the text at `at` starts with, shortest first.
  template <typename Visit>
  void prefixes(std::string_view text, std::size_t at, Visit visit) const {
    std::int32_t node = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
      node = child(node, text[i]);
      if (node < 0) return;
      if (nodes_[node].value >= 0) visit(i + 1 - at, nodes_[node].value);
    }
  }

 private:
  struct Node {
    char byte = 0;
    std::int32_t value = -1;
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
  };
  std::int32_t child(std::int32_t node, char byte) const {
    std::int32_t at = nodes_[node].first_child;
    while (at >= 0 && nodes_[at].byte != byte) at = nodes_[at].next_sibling;
    return at;
  }

  std::vector<Node> nodes_;  // nodes_[0] is the root
};

}  // namespace shoal::tokenizer
