#include "core/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

namespace shoal {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("shoal", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    return made;
  }();
  return instance;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

bool has_control(std::string_view text) { return std::ranges::any_of(text, is_control); }

// A line is a line, whatever peers and files have put into its fields.
std::string without_control(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (is_control(c)) {
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view event, std::string_view fields) {
  const std::string escaped = has_control(fields) ? without_control(fields) : std::string();
  if (!escaped.empty()) fields = escaped;
  logger().log(to_spdlog(level), "{}{}{}", event, fields.empty() ? "" : " ", fields);
}

}  // namespace shoal
