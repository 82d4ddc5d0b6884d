// One conversation between a person, or a pipe, and one server: messages, commands, what is printed of both.
//
// Thread-safety: one thread; pieces of an answer are printed on the client's own while this one waits.
// Ownership: owns the terminal, null for a pipe.
// Invariants:
//   1. Without a terminal to type at, standard output gets answers alone; into a file or pipe, as they are.
//   2. Nothing else that a server says is printed without printable(): it may reach a screen.

#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat_conversation.h"
#include "cli/chat_server.h"
#include "cli/chat_terminal.h"

namespace shoal::cli {

class ChatDialogue {
 public:
  ChatDialogue(ChatServer server, ChatConversation conversation, std::unique_ptr<Terminal> terminal,
               bool stats)
      : server_(std::move(server)),
        conversation_(std::move(conversation)),
        terminal_(std::move(terminal)),
        stats_(stats || terminal_ != nullptr) {}

  // Exit codes: 0, or 1 where an answer or a command failed through a pipe.
  int run_terminal();
  // Every line a message or a command; ends at the first that fails.
  int run_lines(std::istream& in);
  int run_once(std::string message);

 private:
  enum class Next { kGoOn, kFailed, kLeave };

  Next take(std::string_view line);
  Next command(std::string_view name, std::string_view rest);
  Next ask(std::string message);
  // before: the answer that the conversation goes back to where no other comes.
  Next answer(std::optional<std::string> before = std::nullopt);
  Next retry();
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
  std::string failed_message_;  // the last question, where it has no answer and was taken back
  bool reasoning_ = false;      // what was shown last
};

// The one of these that is wanted: by its name, else by its number from 1; nothing where there is none.
std::optional<std::string> chosen(const std::vector<std::string>& models, std::string_view wanted);

// Without the blanks around it.
std::string_view trimmed(std::string_view text);

}  // namespace shoal::cli
