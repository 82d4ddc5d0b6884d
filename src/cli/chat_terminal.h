// The terminal of `shoal chat`: lines edited with the keys people know, and Ctrl-C as an event, not a death.
//
// Thread-safety: one thread; say() may run on another while no line is being read.
// Ownership: owns the terminal's mode and the signal descriptor; the destructor gives the mode back.
// Invariants:
//   1. SIGINT, SIGTERM and SIGHUP are blocked in every thread started after open(); they arrive at stop_fd().
//   2. A line is valid UTF-8. Longer than the screen is wide it scrolls sideways; pasted line breaks stay in
//      it. It holds 4 MiB; the user is told where something was left out.

#pragma once

#include <termios.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::cli {

class Terminal {
 public:
  // Standard input and output must both be a terminal: null where they are not.
  static std::unique_ptr<Terminal> open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Nothing where the user wants to leave: Ctrl-D on an empty line, a hang-up, SIGTERM.
  std::optional<std::string> read_line(std::string_view prompt);

  // Readable while a signal waits: Ctrl-C during an answer.
  int stop_fd() const { return signal_fd_; }
  // Takes the waiting signals; true where one of them asks to leave altogether.
  bool take_signals();

  void say(std::string_view text);
  void say_dim(std::string_view text);

 private:
  Terminal(const termios& before, int signal_fd);

  enum class Key { kNone, kLine, kLeave };
  Key take_byte(unsigned char byte);
  void take_escape();
  void take_paste();
  // -1: none within the time.
  int next_byte(int milliseconds);

  // As much as there is room for.
  void insert(std::string_view text);
  void erase(std::size_t from, std::size_t to);
  std::size_t before(std::size_t at) const;
  std::size_t after(std::size_t at) const;
  void recall(int step);
  void refresh() const;

  const termios before_;
  const int signal_fd_;
  bool colour_;

  std::string prompt_;
  std::string line_;
  std::size_t cursor_ = 0;  // in bytes of line_
  bool told_full_ = false;  // once a line, or every key of a long paste would say it
  std::vector<std::string> history_;
  std::size_t recalled_ = 0;  // history_.size(): the line being written
  std::string draft_;
};

}  // namespace shoal::cli
