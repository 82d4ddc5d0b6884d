#include "gateway/trace_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace shoal::gateway {
namespace {

std::uint64_t drawn() {
  thread_local std::mt19937_64 random{(std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()};
  std::uint64_t value = 0;
  while (value == 0) value = random();  // an id of zeros is none
  return value;
}

bool is_id(std::string_view text) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return std::ranges::all_of(text, digit) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

TraceContext TraceContext::continued(std::string_view header) {
  TraceContext context;
  context.parent_id = fmt::format("{:016x}", drawn());
  // version-trace-parent-flags; a later version may have more after them.
  const bool shaped = header.size() >= 55 && header[2] == '-' && header[35] == '-' && header[52] == '-' &&
                      (header.size() == 55 || (header[55] == '-' && !header.starts_with("00"))) &&
                      !header.starts_with("ff");
  const auto flags = [&] { return header.substr(53, 2); };
  if (shaped && is_id(header.substr(3, 32)) && is_id(header.substr(36, 16)) &&
      flags().find_first_not_of("0123456789abcdef") == std::string_view::npos) {
    context.trace_id = header.substr(3, 32);
    context.flags = flags();
  } else {
    context.trace_id = fmt::format("{:016x}{:016x}", drawn(), drawn());
  }
  return context;
}

}  // namespace shoal::gateway
