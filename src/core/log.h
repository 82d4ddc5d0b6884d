// The log: events with fields, one line each, on standard error.
//
// Thread-safety: every function may be called from any thread.
// Form: `2026-01-02T03:04:05.678 info request.done id=17 tokens=32 ms=410`: an event's name, then fields.
//   One line per decision, never one per token. Prompts and outputs are never logged.

#pragma once

#include <fmt/format.h>

#include <string_view>

namespace shoal {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Below this level nothing is written. Default kInfo.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view event, std::string_view fields);

// fields: fmt format of `name=value` pairs.
template <typename... Args>
void log(LogLevel level, std::string_view event, fmt::format_string<Args...> fields, Args&&... args) {
  if (log_enabled(level)) log_line(level, event, fmt::format(fields, std::forward<Args>(args)...));
}
inline void log(LogLevel level, std::string_view event) { log_line(level, event, {}); }

}  // namespace shoal
