#include "cli/chat_dialogue.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <istream>
#include <utility>

#include "cli/error_output.h"

namespace shoal::cli {
namespace {

constexpr std::string_view kHelp =
    "/clear             forget what has been said\n"
    "/system [TEXT]     show or set the system prompt; /system - removes it\n"
    "/model [NAME|N]    list the server's models, or talk to another one\n"
    "/set [NAME [VALUE]] show, set or unset temperature, max_tokens, seed, ...\n"
    "/retry             ask the last question again\n"
    "/save FILE         write the conversation as JSON; /load FILE goes on with one\n"
    "/exit              leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A message that begins with // is sent with one slash.\n";

std::string statistics(const ChatAnswer& answer) {
  return fmt::format("[{}{} tokens, {:.1f} tokens/s, first after {:.2f} s{}]", answer.counted ? "" : "about ",
                     answer.tokens, answer.tokens_per_second(), answer.first_seconds,
                     answer.finish_reason == "length" ? ", cut at the length allowed" : "");
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<std::string> chosen(const std::vector<std::string>& models, std::string_view wanted) {
  // Names first: one may look like a number.
  if (std::find(models.begin(), models.end(), wanted) != models.end()) return std::string(wanted);
  std::size_t number = 0;
  const char* const wanted_end = wanted.data() + wanted.size();
  const auto [end, error] = std::from_chars(wanted.data(), wanted_end, number);
  if (error != std::errc() || end != wanted_end || number < 1 || number > models.size()) return std::nullopt;
  return models[number - 1];
}

// ---- output

ChatDialogue::Next ChatDialogue::fail(std::string_view why) {
  if (terminal_) {
    terminal_->say(fmt::format("! {}\n", printable(why)));
  } else {
    print_error("shoal chat: {}\n", printable(why));
  }
  return Next::kFailed;
}

void ChatDialogue::note(std::string_view text) {
  if (terminal_) {
    terminal_->say_dim(printable(text));
    terminal_->say("\n");
  } else {
    print_error("{}\n", printable(text));
  }
}

ChatDialogue::Next ChatDialogue::report(const Status& status, std::string_view done) {
  if (!status.ok()) return fail(status.message());
  note(done);
  return Next::kGoOn;
}

void ChatDialogue::show(ChatServer::Piece kind, std::string_view text) {
  const bool reasoning = kind == ChatServer::Piece::kReasoning;
  if (!terminal_) {
    if (reasoning) return;
    // A file or pipe gets the answer itself, as it is. A screen may stand behind a question from a pipe too.
    const std::string shown = ::isatty(STDOUT_FILENO) != 0 ? printable(text) : std::string(text);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
    return;
  }
  if (reasoning_ && !reasoning) terminal_->say("\n\n");
  reasoning_ = reasoning;
  reasoning ? terminal_->say_dim(printable(text)) : terminal_->say(printable(text));
}

// ---- asking

ChatDialogue::Next ChatDialogue::ask(std::string message) {
  conversation_.say(std::move(message));
  return answer();
}

ChatDialogue::Next ChatDialogue::retry() {
  if (!failed_message_.empty()) return ask(failed_message_);
  auto before = conversation_.take_back_answer();
  if (!before) return fail("there is nothing to ask again");
  return answer(std::move(before));
}

ChatDialogue::Next ChatDialogue::answer(std::optional<std::string> before) {
  reasoning_ = false;
  const int stop_fd = terminal_ ? terminal_->stop_fd() : -1;
  ChatAnswer answer = server_.ask(
      conversation_.request(), [this](ChatServer::Piece kind, std::string_view text) { show(kind, text); },
      stop_fd);
  const bool leave = terminal_ && terminal_->take_signals();
  if (!answer.text.empty() || terminal_) show(ChatServer::Piece::kText, "\n");
  const bool stopped = answer.status.code() == ErrorCode::kCancelled;
  if (!answer.status.ok() && (!stopped || answer.text.empty())) {
    const bool again = before.has_value();
    if (again) {
      conversation_.answered(*std::move(before));
    } else {
      failed_message_ = conversation_.take_back();
    }
    if (leave) return Next::kLeave;
    if (!stopped) return fail(answer.status.message() + (terminal_ ? "; /retry asks again" : ""));
    note(again ? "[stopped before the first word; the answer before stays]"
               : "[stopped before the first word; not kept]");
    return Next::kGoOn;
  }
  conversation_.answered(std::move(answer.text));
  failed_message_.clear();
  if (leave) return Next::kLeave;
  if (stopped) {
    note("[stopped; what there is of it is kept]");
  } else if (stats_) {
    note(statistics(answer));
  }
  return Next::kGoOn;
}

// ---- commands

ChatDialogue::Next ChatDialogue::take(std::string_view line) {
  if (!line.starts_with('/')) return ask(std::string(line));
  if (line.starts_with("//")) return ask(std::string(line.substr(1)));
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  return command(line.substr(1, end - 1), trimmed(line.substr(end)));
}

ChatDialogue::Next ChatDialogue::command(std::string_view name, std::string_view rest) {
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
  if (name == "retry") return retry();
  if (name == "system") return change_system(rest);
  if (name == "model") return choose_model(rest);
  if (name == "set") return set(rest);
  if (name == "save" || name == "load") {
    const std::string file(rest);
    if (file.empty()) return fail(fmt::format("/{} needs a file", name));
    if (name == "save") return report(conversation_.save(file), "[saved to " + file + "]");
    const Status loaded = conversation_.load(file);
    if (loaded.ok()) failed_message_.clear();
    return report(loaded, fmt::format("[{} messages]", conversation_.size()));
  }
  return fail(fmt::format("there is no /{}; /help lists the commands", name));
}

ChatDialogue::Next ChatDialogue::change_system(std::string_view rest) {
  if (rest.empty())
    return report({}, conversation_.system.empty() ? "[no system prompt]" : conversation_.system);
  conversation_.system = rest == "-" ? "" : std::string(rest);
  return report({}, "[from the next message on]");
}

ChatDialogue::Next ChatDialogue::choose_model(std::string_view wanted) {
  const auto models = server_.models(terminal_ ? terminal_->stop_fd() : -1);
  if (terminal_ && terminal_->take_signals()) return Next::kLeave;
  if (!models.ok()) {
    if (models.error().code() == ErrorCode::kCancelled) return report({}, "[stopped]");
    if (wanted.empty()) return fail(models.error().message());
    conversation_.model = std::string(wanted);  // a server without a list may have it all the same
    return report({}, fmt::format("[talking to {}; the server lists no models]", wanted));
  }
  if (wanted.empty()) {
    for (std::size_t i = 0; i < models->size(); ++i) {
      note(fmt::format("{} {} {}", (*models)[i] == conversation_.model ? "*" : " ", i + 1, (*models)[i]));
    }
    return Next::kGoOn;
  }
  auto model = chosen(*models, wanted);
  if (!model) return fail(fmt::format("the server lists no model '{}'; /model shows what it has", wanted));
  conversation_.model = *std::move(model);
  return report({}, fmt::format("[talking to {}]", conversation_.model));
}

ChatDialogue::Next ChatDialogue::set(std::string_view rest) {
  const std::size_t end = std::min(rest.find_first_of(" \t="), rest.size());
  const std::string_view name = rest.substr(0, end);
  std::string_view value = trimmed(rest.substr(end));
  if (value.starts_with('=')) value = trimmed(value.substr(1));
  if (name.empty()) {
    std::string all;
    for (const auto& [known, number] : conversation_.settings()) all += fmt::format("{}={} ", known, number);
    return report({},
                  all.empty() ? "[nothing set; there are " + ChatConversation::known_settings() + "]" : all);
  }
  if (value.empty()) {
    return report(conversation_.unset(name), fmt::format("[{} is the server's affair]", name));
  }
  return report(conversation_.set(name, value), fmt::format("[{} is {}]", name, value));
}

// ---- the three ways to run

int ChatDialogue::run_terminal() {
  note(fmt::format("{} at {}. /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.",
                   conversation_.model.empty() ? "A model" : conversation_.model, server_.name()));
  for (;;) {
    const auto line = terminal_->read_line("> ");
    if (!line) return 0;
    const std::string_view text = trimmed(*line);
    if (!text.empty() && take(text) == Next::kLeave) return 0;
  }
}

int ChatDialogue::run_lines(std::istream& in) {
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

int ChatDialogue::run_once(std::string message) { return ask(std::move(message)) == Next::kFailed ? 1 : 0; }

}  // namespace shoal::cli
