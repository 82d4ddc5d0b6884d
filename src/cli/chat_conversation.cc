#include "cli/chat_conversation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "wire/json.h"

namespace shoal::cli {
namespace {

using nlohmann::ordered_json;

struct Setting {
  std::string_view name;
  bool whole;  // an integer
};
constexpr std::array kSettings = {
    Setting{"temperature", false},
    Setting{"top_p", false},
    Setting{"top_k", true},
    Setting{"min_p", false},
    Setting{"repetition_penalty", false},
    Setting{"frequency_penalty", false},
    Setting{"presence_penalty", false},
    Setting{"max_tokens", true},
    Setting{"seed", true},
};

const Setting* find_setting(std::string_view name) {
  const auto* at =
      std::find_if(kSettings.begin(), kSettings.end(), [name](const Setting& s) { return s.name == name; });
  return at == kSettings.end() ? nullptr : at;
}

Status no_setting(std::string_view name) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("there is no setting '{}'; there are {}", name, ChatConversation::known_settings())};
}

constexpr std::uintmax_t kMaxFile = 256 << 20;

Expected<std::string> read_whole(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return Status(ErrorCode::kIo, fmt::format("{}: is not a file that can be read", file.string()));
  }
  if (std::filesystem::file_size(file, error) > kMaxFile) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}: is too long for a conversation", file.string()));
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return Status(ErrorCode::kIo, fmt::format("{}: cannot be read", file.string()));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

std::string ChatConversation::known_settings() {
  std::string names;
  for (const Setting& setting : kSettings)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", setting.name);
  return names;
}

Status ChatConversation::set(std::string_view name, std::string_view value) {
  const Setting* setting = find_setting(name);
  if (setting == nullptr) return no_setting(name);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool read = error == std::errc() && end == value.data() + value.size() && std::isfinite(number);
  // 2^53: integers beyond it are not all doubles.
  if (!read || (setting->whole && (number != std::floor(number) || std::abs(number) > 9007199254740992.0))) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} takes {}, not '{}'", name, setting->whole ? "an integer" : "a number", value)};
  }
  settings_[std::string(name)] = number;
  return {};
}

Status ChatConversation::unset(std::string_view name) {
  if (find_setting(name) == nullptr) return no_setting(name);
  settings_.erase(std::string(name));
  return {};
}

std::string ChatConversation::take_back() {
  std::string text = std::move(messages_.back().content);
  messages_.pop_back();
  return text;
}

std::optional<std::string> ChatConversation::take_back_answer() {
  // Before an answer there is always its question.
  if (messages_.empty() || messages_.back().role != "assistant") return std::nullopt;
  return take_back();
}

std::string ChatConversation::request() const {
  ordered_json body;
  if (!model.empty()) body["model"] = model;
  body["messages"] = ordered_json::array();
  if (!system.empty()) body["messages"].push_back({{"role", "system"}, {"content", system}});
  for (const Message& message : messages_) {
    body["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  for (const auto& [name, value] : settings_) {
    if (find_setting(name)->whole) {
      body[name] = static_cast<std::int64_t>(value);
    } else {
      body[name] = value;
    }
  }
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Status ChatConversation::save(const std::filesystem::path& file) const {
  ordered_json saved;
  saved["model"] = model;
  saved["messages"] = ordered_json::array();
  if (!system.empty()) saved["messages"].push_back({{"role", "system"}, {"content", system}});
  for (const Message& message : messages_) {
    saved["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  const std::string text = saved.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    const char* why = errno == EEXIST ? "exists already; name another file" : std::strerror(errno);
    return {ErrorCode::kIo, fmt::format("{}: {}", file.string(), why)};
  }
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t some = ::write(fd, text.data() + written, text.size() - written);
    if (some <= 0) break;
    written += static_cast<std::size_t>(some);
  }
  const int error = errno;
  ::close(fd);
  if (written == text.size()) return {};
  ::unlink(file.c_str());
  return {ErrorCode::kIo, fmt::format("{}: cannot be written ({})", file.string(), std::strerror(error))};
}

Status ChatConversation::load(const std::filesystem::path& file) {
  SHOAL_ASSIGN(text, read_whole(file));
  const Status wrong(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: holds no conversation: an object with messages of a system prompt, then user and "
                  "assistant in turn",
                  file.string()));
  const auto document = wire::JsonDocument::parse(text);
  simdjson::dom::array list;
  if (!document.ok() || document->root()["messages"].get_array().get(list) != simdjson::SUCCESS) return wrong;
  std::string loaded_system;
  std::vector<Message> loaded;
  std::size_t index = 0;
  for (const wire::JsonElement item : list) {
    std::string_view role;
    std::string_view content;
    if (item["role"].get_string().get(role) != simdjson::SUCCESS ||
        item["content"].get_string().get(content) != simdjson::SUCCESS) {
      return wrong;
    }
    if (index++ == 0 && role == "system") {
      loaded_system = content;
      continue;
    }
    if (role != (loaded.size() % 2 == 0 ? "user" : "assistant")) return wrong;
    loaded.push_back({std::string(role), std::string(content)});
  }
  // A question without its answer is asked again by hand.
  if (loaded.size() % 2 != 0) loaded.pop_back();
  system = std::move(loaded_system);
  messages_ = std::move(loaded);
  return {};
}

}  // namespace shoal::cli
