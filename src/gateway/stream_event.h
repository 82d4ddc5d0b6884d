// What stands in a server-sent event of a worker's stream.
//
// Thread-safety: pure.

#pragma once

#include <string_view>

namespace shoal::gateway {

inline constexpr std::string_view kDoneData = "[DONE]";

// The first line of its data; empty where it has none.
std::string_view data_of(std::string_view event);
// Whether the data is an error of the API.
bool is_error(std::string_view data);

}  // namespace shoal::gateway
