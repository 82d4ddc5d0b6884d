// How many coordinates compute a prompt together, and whether its queries or the pages they see travel.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>

namespace shoal::policy {

// Prompts below this many uncached tokens run on one coordinate, while others run beside them: attention is a
// small part of their work (a seventh, for a model of 1B parameters at 4,096 tokens), so that dealing them
// out saves less time than keeping coordinates in step costs.
inline constexpr std::int64_t kSharedPrompt = 4096;
// What each coordinate should get of a prompt at least.
inline constexpr std::int64_t kSharedPart = 2048;

struct DegreeInput {
  std::int64_t tokens = 0;  // to compute
  std::int64_t room = 0;    // tokens that the emptiest coordinate's pool can take
  std::int32_t coordinates = 1;
  std::int32_t forced = 0;  // --cp-force; 0: not
};
std::int32_t choose_degree(const DegreeInput& input);

// In one layer, between a coordinate whose queries see pages of others and those others.
struct PassingInput {
  std::int64_t rows = 0;         // of queries
  std::int64_t owners = 0;       // others with pages that they see
  std::int64_t pages = 0;        // of those, all owners together
  std::int64_t results = 0;      // partial results of a row, all owners together
  std::int64_t page_bytes = 0;   // of a layer
  std::int64_t query_bytes = 0;  // of a row
  std::int64_t result_bytes = 0;
};
// True where that is fewer bytes than bringing the pages.
bool passes_queries(const PassingInput& input);

}  // namespace shoal::policy
