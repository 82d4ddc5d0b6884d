#include "policy/context_degree.h"

#include <algorithm>

namespace shoal::policy {

std::int32_t choose_degree(const DegreeInput& input) {
  if (input.forced > 0) return std::min(input.forced, input.coordinates);
  const bool fits = input.tokens <= input.room;
  if (fits && input.tokens < kSharedPrompt) return 1;
  if (!fits) return input.coordinates;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(input.tokens / kSharedPart, 1, input.coordinates));
}

bool passes_queries(const PassingInput& input) {
  return input.rows * (input.owners * input.query_bytes + input.results * input.result_bytes) <
         input.pages * input.page_bytes;
}

}  // namespace shoal::policy
