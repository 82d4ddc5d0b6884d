#include "gateway/stream_event.h"

#include <cstddef>

namespace shoal::gateway {

std::string_view data_of(std::string_view event) {
  constexpr std::string_view kData = "data:";
  std::size_t at = 0;
  if (!event.starts_with(kData)) {
    at = event.find("\ndata:");
    if (at == std::string_view::npos) return {};
    ++at;
  }
  event.remove_prefix(at + kData.size());
  if (event.starts_with(' ')) event.remove_prefix(1);
  event = event.substr(0, event.find('\n'));
  if (event.ends_with('\r')) event.remove_suffix(1);
  return event;
}

bool is_error(std::string_view data) { return data.starts_with("{\"error\""); }

}  // namespace shoal::gateway
