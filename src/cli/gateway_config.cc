#include "cli/gateway_config.h"

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace shoal::cli {
namespace {

std::optional<std::string> text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return text;
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto whole = node.value_exact<std::int64_t>()) return fmt::format("{}", *whole);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  return std::nullopt;
}

// A value, a list of values, or a table of NAME=VALUE pairs.
std::optional<std::vector<std::string>> texts_of(const toml::node& node) {
  std::vector<std::string> texts;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& each : *list) {
      const auto text = text_of(each);
      if (!text) return std::nullopt;
      texts.push_back(*text);
    }
  } else if (const toml::table* table = node.as_table()) {
    for (const auto& [key, value] : *table) {
      const auto text = text_of(value);
      if (!text) return std::nullopt;
      texts.push_back(fmt::format("{}={}", key.str(), *text));
    }
  } else {
    const auto text = text_of(node);
    if (!text) return std::nullopt;
    texts.push_back(*text);
  }
  return texts;
}

}  // namespace

Status apply_config(CLI::App& command, const std::filesystem::path& file) {
  const toml::parse_result parsed = toml::parse_file(file.string());
  const auto wrong = [&](std::uint32_t line, const std::string& sentence) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file.string(), line, sentence));
  };
  if (!parsed) return wrong(parsed.error().source().begin.line, std::string(parsed.error().description()));
  for (const auto& [key, node] : parsed.table()) {
    const std::uint32_t line = node.source().begin.line;
    CLI::Option* option = command.get_option_no_throw("--" + std::string(key.str()));
    if (option == nullptr || key.str() == "config" || key.str() == "help")
      return wrong(line, fmt::format("there is no flag --{}", key.str()));
    if (option->count() > 0) continue;
    const auto values = texts_of(node);
    if (!values)
      return wrong(line,
                   fmt::format("'{}' must be a value, a list of values, or a table of them", key.str()));
    try {
      for (const std::string& value : *values) option->add_result(value);
      option->run_callback();
    } catch (const CLI::Error& error) {
      return wrong(line, error.what());
    }
  }
  return {};
}

}  // namespace shoal::cli
