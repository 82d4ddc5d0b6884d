#include "cli/chat.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat_conversation.h"
#include "cli/chat_server.h"
#include "cli/chat_terminal.h"
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

constexpr std::string_view kHelp =
    "/clear             forget what has been said\n"
    "/system [TEXT]     show or set the system prompt; /system - removes it\n"
    "/model [NAME|N]    list the server's models, or talk to another one\n"
    "/set [NAME [VALUE]] show, set or unset temperature, max_tokens, seed, ...\n"
    "/retry             ask the last question again\n"
    "/save FILE         write the conversation as JSON; /load FILE goes on with one\n"
    "/exit              leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A message that begins with // is sent with one slash.\n";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string statistics(const ChatAnswer& answer) {
  return fmt::format("[{}{} tokens, {:.1f} tokens/s, first after {:.2f} s{}]", answer.counted ? "" : "about ",
                     answer.tokens, answer.tokens_per_second(), answer.first_seconds,
                     answer.finish_reason == "length" ? ", cut at the length allowed" : "");
}

// One conversation with one server. What it prints goes to the terminal, or through a pipe to standard output
// (answers alone) and standard error.
class Chat {
 public:
  Chat(ChatServer server, ChatConversation conversation, std::unique_ptr<Terminal> terminal, bool stats)
      : server_(std::move(server)),
        conversation_(std::move(conversation)),
        terminal_(std::move(terminal)),
        stats_(stats || terminal_ != nullptr) {}

  int run_terminal();
  int run_lines(std::istream& in);
  int run_once(std::string message);

 private:
  enum class Next { kGoOn, kFailed, kLeave };

  Next take(std::string_view line);
  Next command(std::string_view name, std::string_view rest);
  Next ask(std::string message);
  Next answer();
  void show(ChatServer::Piece kind, std::string_view text);
  Next choose_model(std::string_view wanted);
  Next set(std::string_view rest);
  Next change_system(std::string_view rest);

  Next fail(std::string_view why);
  void note(std::string_view text);
  Next report(const Status& status, std::string_view done);

  ChatServer server_;
  ChatConversation conversation_;
  std::unique_ptr<Terminal> terminal_;
  const bool stats_;
  std::string failed_message_;  // for /retry
  bool reasoning_ = false;      // what was shown last
};

// ---- output

Chat::Next Chat::fail(std::string_view why) {
  if (terminal_) {
    terminal_->say(fmt::format("! {}\n", printable(why)));
  } else {
    fmt::print(stderr, "shoal chat: {}\n", why);
  }
  return Next::kFailed;
}

void Chat::note(std::string_view text) {
  if (terminal_) {
    terminal_->say_dim(printable(text));
    terminal_->say("\n");
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

Chat::Next Chat::report(const Status& status, std::string_view done) {
  if (!status.ok()) return fail(status.message());
  note(done);
  return Next::kGoOn;
}

void Chat::show(ChatServer::Piece kind, std::string_view text) {
  const bool reasoning = kind == ChatServer::Piece::kReasoning;
  if (!terminal_) {
    // A pipe gets the answer itself, as it is.
    if (!reasoning) std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return;
  }
  if (reasoning_ && !reasoning) terminal_->say("\n\n");
  reasoning_ = reasoning;
  reasoning ? terminal_->say_dim(printable(text)) : terminal_->say(printable(text));
}

// ---- asking

Chat::Next Chat::ask(std::string message) {
  failed_message_ = message;
  conversation_.say(std::move(message));
  return answer();
}

Chat::Next Chat::answer() {
  reasoning_ = false;
  const int stop_fd = terminal_ ? terminal_->stop_fd() : -1;
  ChatAnswer answer = server_.ask(
      conversation_.request(), [this](ChatServer::Piece kind, std::string_view text) { show(kind, text); },
      stop_fd);
  const bool leave = terminal_ && terminal_->take_signals();
  if (!answer.text.empty() || terminal_) show(ChatServer::Piece::kText, "\n");
  const bool stopped = answer.status.code() == ErrorCode::kCancelled;
  if (!answer.status.ok() && (!stopped || answer.text.empty())) {
    conversation_.take_back();
    if (leave) return Next::kLeave;
    if (!stopped) return fail(answer.status.message() + (terminal_ ? "; /retry asks again" : ""));
    note("[stopped before the first word; not kept]");
    return Next::kGoOn;
  }
  conversation_.answered(std::move(answer.text));
  if (leave) return Next::kLeave;
  if (stopped) {
    note("[stopped; what there is of it is kept]");
  } else if (stats_) {
    note(statistics(answer));
  }
  return Next::kGoOn;
}

// ---- commands

Chat::Next Chat::take(std::string_view line) {
  if (!line.starts_with('/')) return ask(std::string(line));
  if (line.starts_with("//")) return ask(std::string(line.substr(1)));
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  return command(line.substr(1, end - 1), trimmed(line.substr(end)));
}

Chat::Next Chat::command(std::string_view name, std::string_view rest) {
  if (name == "exit" || name == "quit" || name == "bye") return Next::kLeave;
  if (name == "help" || name == "?") {
    terminal_ ? terminal_->say(kHelp) : note(kHelp);
    return Next::kGoOn;
  }
  if (name == "clear") {
    conversation_.clear();
    failed_message_.clear();
    return report({}, "[forgotten; the system prompt and settings stay]");
  }
  if (name == "retry") {
    if (conversation_.take_back_answer()) return answer();
    if (failed_message_.empty()) return fail("there is nothing to ask again");
    return ask(failed_message_);
  }
  if (name == "system") return change_system(rest);
  if (name == "model") return choose_model(rest);
  if (name == "set") return set(rest);
  if (name == "save" || name == "load") {
    const std::string file(rest);
    if (file.empty()) return fail(fmt::format("/{} needs a file", name));
    if (name == "save") return report(conversation_.save(file), "[saved to " + file + "]");
    const Status loaded = conversation_.load(file);
    failed_message_.clear();
    return report(loaded, fmt::format("[{} messages]", conversation_.size()));
  }
  return fail(fmt::format("there is no /{}; /help lists the commands", name));
}

Chat::Next Chat::change_system(std::string_view rest) {
  if (rest.empty())
    return report({}, conversation_.system.empty() ? "[no system prompt]" : conversation_.system);
  conversation_.system = rest == "-" ? "" : std::string(rest);
  return report({}, "[from the next message on]");
}

Chat::Next Chat::choose_model(std::string_view wanted) {
  const auto models = server_.models();
  if (!models.ok()) {
    if (wanted.empty()) return fail(models.error().message());
    conversation_.model = std::string(wanted);  // a server without a list may have it all the same
    return report({}, fmt::format("[talking to {}; the server lists no models]", wanted));
  }
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  const bool is_number = error == std::errc() && end == wanted.data() + wanted.size();
  if (std::find(models->begin(), models->end(), wanted) != models->end()) {
    conversation_.model = std::string(wanted);
  } else if (!wanted.empty() && is_number && number >= 1 && number <= models->size()) {
    conversation_.model = (*models)[number - 1];
  } else if (!wanted.empty()) {
    return fail(fmt::format("the server lists no model '{}'; /model shows what it has", wanted));
  } else {
    for (std::size_t i = 0; i < models->size(); ++i) {
      note(fmt::format("{} {} {}", (*models)[i] == conversation_.model ? "*" : " ", i + 1, (*models)[i]));
    }
    return Next::kGoOn;
  }
  return report({}, fmt::format("[talking to {}]", conversation_.model));
}

Chat::Next Chat::set(std::string_view rest) {
  const std::size_t end = std::min(rest.find_first_of(" \t="), rest.size());
  const std::string_view name = rest.substr(0, end);
  const std::string_view value = end < rest.size() ? trimmed(rest.substr(end + 1)) : std::string_view();
  if (name.empty()) {
    std::string all;
    for (const auto& [known, number] : conversation_.settings()) all += fmt::format("{}={} ", known, number);
    return report({},
                  all.empty() ? "[nothing set; there are " + ChatConversation::known_settings() + "]" : all);
  }
  if (value.empty()) {
    conversation_.unset(name);
    return report({}, fmt::format("[{} is the server's affair]", name));
  }
  return report(conversation_.set(name, value), fmt::format("[{} is {}]", name, value));
}

// ---- the three ways to run

int Chat::run_terminal() {
  note(fmt::format("{} at {}. /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.",
                   conversation_.model.empty() ? "A model" : conversation_.model, server_.name()));
  for (;;) {
    const auto line = terminal_->read_line("> ");
    if (!line) return 0;
    const std::string_view text = trimmed(*line);
    if (!text.empty() && take(text) == Next::kLeave) return 0;
  }
}

int Chat::run_lines(std::istream& in) {
  for (std::string line; std::getline(in, line);) {
    if (!simdjson::validate_utf8(line.data(), line.size())) {
      fail("standard input is not UTF-8");
      return 1;
    }
    const std::string_view text = trimmed(line);
    if (text.empty()) continue;
    const Next next = take(text);
    if (next == Next::kLeave) return 0;
    // What follows would go on with an answer that is missing.
    if (next == Next::kFailed) return 1;
  }
  return 0;
}

int Chat::run_once(std::string message) { return ask(std::move(message)) == Next::kFailed ? 1 : 0; }

// ---- start

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
  SHOAL_ASSIGN(models, server.models());
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
    std::size_t number = 0;
    std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
    if (number >= 1 && number <= models.size()) return models[number - 1];
    if (std::find(models.begin(), models.end(), wanted) != models.end()) return std::string(wanted);
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
      return complain("chat", model.error());
    }
    conversation.model = *std::move(model);
  } else {
    conversation.model = flags.model;
  }
  const bool interactive = terminal != nullptr;
  Chat chat(*std::move(server), std::move(conversation), std::move(terminal), flags.stats);
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
  chat->add_option("--timeout", flags->timeout, "Seconds to wait for the next piece of an answer")
      ->capture_default_str()
      ->check(real_range(0.1, 86400));
  chat->add_flag("--lines", flags->lines, "Every line of standard input is a message or a /command");
  chat->add_flag("--stats", flags->stats,
                 "Tokens per second after each answer, on standard error through a pipe");
  chat->callback([flags, &exit_code] { exit_code = run_chat(*flags); });
}

}  // namespace shoal::cli
