// One conversation between a person, or a pipe, and one server: messages, commands, what is printed of both.
//
// Thread-safety: one thread; pieces of an answer are printed on the client's own while this one waits.
// Ownership: owns the terminal, null for a pipe.
// Invariants: through a pipe standard output gets answers alone, as they are; on a terminal nothing that a
// server
//   says is printed without printable().

#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

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

// Without the blanks around it.
std::string_view trimmed(std::string_view text);

}  // namespace shoal::cli
