#include "cli/chat.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat_dialogue.h"
#include "cli/cli_model.h"
#include "cli/real_range.h"
#include "wire/tls_context.h"

namespace shoal::cli {
namespace {

struct ChatFlags {
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string system;
  std::vector<std::string> settings;  // NAME=VALUE
  std::string api_key_file;
  std::string ca_file;
  double timeout = 600;
  bool lines = false;
  bool stats = false;
};

// The first line that is neither empty nor a comment, as in the file that `serve --api-key-file` reads.
Expected<std::string> key_from(const std::string& file) {
  std::ifstream in(file);
  if (!in) return Status(ErrorCode::kIo, fmt::format("{}: cannot read the API key", file));
  for (std::string line; std::getline(in, line);) {
    const std::string_view key = trimmed(line);
    if (!key.empty() && !key.starts_with('#')) return std::string(key);
  }
  return Status(ErrorCode::kInvalidArgument, fmt::format("{}: holds no API key", file));
}

Expected<std::string> api_key(const ChatFlags& flags) {
  if (!flags.api_key_file.empty()) return key_from(flags.api_key_file);
  if (const char* own = std::getenv("SHOAL_API_KEY"); own != nullptr) return std::string(trimmed(own));
  // Everybody's clients read this one, and it may be worth money: never in clear text.
  const char* common = std::getenv("OPENAI_API_KEY");
  return common != nullptr && flags.url.starts_with("https://") ? std::string(trimmed(common))
                                                                : std::string();
}

Expected<ChatServer> open_server(const ChatFlags& flags) {
  ChatServer::Options options;
  options.url = flags.url;
  options.silence = std::chrono::milliseconds(static_cast<std::int64_t>(flags.timeout * 1000));
  SHOAL_ASSIGN(key, api_key(flags));
  options.api_key = std::move(key);
  if (!flags.ca_file.empty()) {
    SHOAL_ASSIGN(tls, wire::TlsContext::for_client(flags.ca_file));
    options.tls = std::move(tls);
  }
  return ChatServer::at(std::move(options));
}

// The model to talk to; the terminal asks where there are several.
Expected<std::string> model_of(const ChatServer& server, Terminal* terminal) {
  SHOAL_ASSIGN(models, server.models(terminal != nullptr ? terminal->stop_fd() : -1));
  if (models.empty())
    return Status(ErrorCode::kUnavailable, server.name() + " lists no model; name one with --model");
  if (models.size() == 1) return models.front();
  std::string list;
  for (std::size_t i = 0; i < models.size(); ++i) {
    list += terminal != nullptr ? fmt::format("  {} {}\n", i + 1, models[i])
                                : fmt::format("{}{}", i == 0 ? "" : ", ", models[i]);
  }
  if (terminal == nullptr) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{} has several models; choose with --model: {}", server.name(), list));
  }
  terminal->say(printable(list));
  for (;;) {
    const auto line = terminal->read_line("model> ");
    if (!line) return Status(ErrorCode::kCancelled, "left without choosing a model");
    const std::string_view wanted = trimmed(*line);
    if (auto model = chosen(models, wanted)) return *std::move(model);
    if (!wanted.empty()) terminal->say(printable(fmt::format("There is no model '{}'.\n", wanted)));
  }
}

int run_chat(const ChatFlags& flags) {
  ChatConversation conversation;
  for (const std::string& setting : flags.settings) {
    const std::size_t equals = setting.find('=');
    const Status set =
        equals == std::string::npos
            ? Status(ErrorCode::kInvalidArgument, fmt::format("--set takes NAME=VALUE, not '{}'", setting))
            : conversation.set(std::string_view(setting).substr(0, equals),
                               std::string_view(setting).substr(equals + 1));
    if (!set.ok()) return complain("chat", set, 2);
  }
  conversation.system = flags.system;
  auto server = open_server(flags);
  if (!server.ok())
    return complain("chat", server.error(), server.error().code() == ErrorCode::kInvalidArgument ? 2 : 1);
  auto terminal = flags.lines ? nullptr : Terminal::open();
  // Read before the server is asked: a pipe without a message needs no server.
  std::string message;
  if (!terminal && !flags.lines) {
    message.assign(std::istreambuf_iterator<char>(std::cin), {});
    message = std::string(trimmed(message));
    if (message.empty())
      return complain("chat", Status(ErrorCode::kInvalidArgument, "standard input holds no message"));
    if (!simdjson::validate_utf8(message.data(), message.size())) {
      return complain("chat", Status(ErrorCode::kInvalidArgument, "standard input is not UTF-8"));
    }
  }
  if (flags.model.empty()) {
    auto model = model_of(*server, terminal.get());
    if (!model.ok()) {
      terminal.reset();
      return complain("chat", Status(model.error().code(), printable(model.error().message())));
    }
    conversation.model = *std::move(model);
  } else {
    conversation.model = flags.model;
  }
  const bool interactive = terminal != nullptr;
  ChatDialogue chat(*std::move(server), std::move(conversation), std::move(terminal), flags.stats);
  if (interactive) return chat.run_terminal();
  return flags.lines ? chat.run_lines(std::cin) : chat.run_once(std::move(message));
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* chat = app.add_subcommand(
      "chat", "Talk to a model behind any server of the OpenAI API, on a terminal or through a pipe");
  chat->add_option("URL", flags->url, "The server, http[s]://HOST[:PORT], or its API, .../v1")
      ->capture_default_str();
  chat->add_option("--model", flags->model, "Which of the server's models (default: the only one, or ask)");
  chat->add_option("--system", flags->system, "The system prompt");
  chat->add_option("--set", flags->settings,
                   "A sampling field, NAME=VALUE: temperature=0, max_tokens=100; repeatable")
      ->allow_extra_args(false);
  chat->add_option("--api-key-file", flags->api_key_file,
                   "File with the API key (default: $SHOAL_API_KEY; for https:// also $OPENAI_API_KEY)");
  chat->add_option("--ca-file", flags->ca_file,
                   "PEM file of the certificates to trust for https:// (default: this system's)");
  chat->add_option("--timeout", flags->timeout,
                   "Seconds to wait for the next piece of an answer; for the list of models 30 at most")
      ->capture_default_str()
      ->check(real_range(0.1, 86400));
  chat->add_flag("--lines", flags->lines, "Every line of standard input is a message or a /command");
  chat->add_flag("--stats", flags->stats,
                 "Tokens per second after each answer, on standard error through a pipe");
  chat->callback([flags, &exit_code] { exit_code = run_chat(*flags); });
}

}  // namespace shoal::cli
