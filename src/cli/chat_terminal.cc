#include "cli/chat_terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <simdjson.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>

namespace shoal::cli {
namespace {

constexpr std::size_t kMaxLine = 4 * 1024 * 1024;  // "4 MiB" in what insert() says
constexpr std::size_t kMaxHistory = 1000;
// After ESC the rest of a key's sequence comes at once.
constexpr int kEscapeMs = 50;
constexpr int kPasteMs = 2000;

constexpr unsigned char ctrl(char letter) { return static_cast<unsigned char>(letter & 0x1f); }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

std::size_t screen_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// One character of a line as it is shown.
struct Shown {
  std::string text;
  int columns = 0;
};
Shown shown(std::string_view character) {
  if (character == "\n") return {"\u21b5", 1};
  if (static_cast<unsigned char>(character.front()) < 0x20) return {"\u00b7", 1};
  wchar_t wide = 0;
  std::mbstate_t state{};
  const std::size_t used = std::mbrtowc(&wide, character.data(), character.size(), &state);
  const int columns = used == character.size() ? ::wcwidth(wide) : -1;
  return columns < 0 ? Shown{"\ufffd", 1} : Shown{std::string(character), columns};
}

}  // namespace

std::unique_ptr<Terminal> Terminal::open() {
  termios before{};
  if (::isatty(STDOUT_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before) != 0) return nullptr;
  std::setlocale(LC_CTYPE, "C.UTF-8");  // for the widths of characters
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  return std::unique_ptr<Terminal>(new Terminal(before, fd));
}

Terminal::Terminal(const termios& before, int signal_fd)
    : before_(before), signal_fd_(signal_fd), colour_(std::getenv("NO_COLOR") == nullptr) {
  // Outside read_line(): keys are neither shown nor lost, Ctrl-C is a signal.
  termios quiet = before_;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  quiet.c_cc[VMIN] = 1;
  quiet.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
}

Terminal::~Terminal() {
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  ::close(signal_fd_);
}

bool Terminal::take_signals() {
  bool leave = false;
  signalfd_siginfo signal{};
  while (::read(signal_fd_, &signal, sizeof signal) == sizeof signal)
    leave = leave || signal.ssi_signo != SIGINT;
  return leave;
}

void Terminal::say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Terminal::say_dim(std::string_view text) {
  say(colour_ ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text));
}

std::optional<std::string> Terminal::read_line(std::string_view prompt) {
  termios editing{};
  ::tcgetattr(STDIN_FILENO, &editing);
  const termios outside = editing;
  editing.c_lflag &= ~static_cast<tcflag_t>(ISIG | IEXTEN);
  editing.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &editing);
  say("\x1b[?2004h");  // pasted text comes marked
  prompt_ = prompt;
  line_.clear();
  cursor_ = 0;
  told_full_ = false;
  recalled_ = history_.size();
  refresh();

  Key key = Key::kNone;
  while (key == Key::kNone) {
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0) continue;
    if (waits[1].revents != 0 && take_signals()) {
      key = Key::kLeave;
    } else if (waits[0].revents != 0) {
      const int byte = next_byte(0);
      key = byte < 0 ? Key::kLeave : take_byte(static_cast<unsigned char>(byte));
    }
  }
  say("\x1b[?2004l\n");
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &outside);
  if (key == Key::kLeave) return std::nullopt;
  if (!line_.empty() && (history_.empty() || history_.back() != line_)) {
    history_.push_back(line_);
    if (history_.size() > kMaxHistory) history_.erase(history_.begin());
  }
  return line_;
}

Terminal::Key Terminal::take_byte(unsigned char byte) {
  switch (byte) {
    case '\r':
    case '\n':
      if (simdjson::validate_utf8(line_.data(), line_.size())) {
        cursor_ = line_.size();
        refresh();
        return Key::kLine;
      }
      say("\nThat is not UTF-8.\n");
      erase(0, line_.size());
      break;
    case ctrl('D'):
      if (line_.empty()) return Key::kLeave;
      erase(cursor_, after(cursor_));
      break;
    case ctrl('C'):
      if (line_.empty()) say("\nCtrl-D or /exit leaves.\n");
      erase(0, line_.size());
      break;
    case ctrl('H'):
    case 0x7f:
      erase(before(cursor_), cursor_);
      break;
    case ctrl('A'):
      cursor_ = 0;
      break;
    case ctrl('E'):
      cursor_ = line_.size();
      break;
    case ctrl('B'):
      cursor_ = before(cursor_);
      break;
    case ctrl('F'):
      cursor_ = after(cursor_);
      break;
    case ctrl('K'):
      erase(cursor_, line_.size());
      break;
    case ctrl('U'):
      erase(0, cursor_);
      break;
    case ctrl('W'): {
      std::size_t from = cursor_;
      while (from > 0 && line_[from - 1] == ' ') --from;
      while (from > 0 && line_[from - 1] != ' ' && line_[from - 1] != '\n') --from;
      erase(from, cursor_);
      break;
    }
    case ctrl('P'):
      recall(-1);
      break;
    case ctrl('N'):
      recall(1);
      break;
    case ctrl('L'):
      say("\x1b[H\x1b[2J");
      break;
    case 0x1b:
      take_escape();
      break;
    default:
      if (byte >= 0x20 || byte == '\t') insert(std::string(1, static_cast<char>(byte)));
  }
  // A character is shown once its last byte is there.
  if (cursor_ == line_.size() && !simdjson::validate_utf8(line_.data(), line_.size())) return Key::kNone;
  refresh();
  return Key::kNone;
}

int Terminal::next_byte(int milliseconds) {
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  unsigned char byte = 0;
  if (::poll(&wait, 1, milliseconds) <= 0 || ::read(STDIN_FILENO, &byte, 1) != 1) return -1;
  return byte;
}

void Terminal::take_escape() {
  const int first = next_byte(kEscapeMs);
  if (first == '\r' || first == '\n') return insert("\n");  // Alt-Enter
  if (first != '[' && first != 'O') return;
  std::string sequence;
  for (int byte = next_byte(kEscapeMs); byte >= 0 && sequence.size() < 16; byte = next_byte(kEscapeMs)) {
    sequence.push_back(static_cast<char>(byte));
    if (byte >= 0x40 && byte <= 0x7e) break;
  }
  if (sequence == "A") return recall(-1);
  if (sequence == "B") return recall(1);
  if (sequence == "C") cursor_ = after(cursor_);
  if (sequence == "D") cursor_ = before(cursor_);
  if (sequence == "H" || sequence == "1~" || sequence == "7~") cursor_ = 0;
  if (sequence == "F" || sequence == "4~" || sequence == "8~") cursor_ = line_.size();
  if (sequence == "3~") erase(cursor_, after(cursor_));
  if (sequence == "200~") take_paste();
}

void Terminal::take_paste() {
  constexpr std::string_view kEnd = "\x1b[201~";
  std::string pasted;      // one byte more than a line holds at most, so that insert() tells
  std::size_t length = 0;  // of all the text; what is beyond is read too, or it would be taken for keys
  std::size_t matched = 0;
  for (int byte = next_byte(kPasteMs); byte >= 0; byte = next_byte(kPasteMs)) {
    const char c = byte == '\r' ? '\n' : static_cast<char>(byte);
    matched = c == kEnd[matched] ? matched + 1 : static_cast<std::size_t>(c == kEnd.front());
    // What is pasted is text, never keys.
    const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
    if (!control && length++ <= kMaxLine) pasted.push_back(c);
    if (matched < kEnd.size()) continue;
    length -= kEnd.size() - 1;  // its first byte is a control character
    break;
  }
  pasted.resize(std::min(pasted.size(), length));
  insert(pasted);
}

void Terminal::insert(std::string_view text) {
  const std::size_t room = kMaxLine - line_.size();
  if (text.size() > room) {
    std::size_t kept = room;
    while (kept > 0 && continues_character(text[kept])) --kept;
    text = text.substr(0, kept);
    if (!told_full_) say("\nA line holds 4 MiB; what is beyond has been left out.\n");
    told_full_ = true;
  }
  line_.insert(cursor_, text);
  cursor_ += text.size();
}

void Terminal::erase(std::size_t from, std::size_t to) {
  told_full_ = false;
  line_.erase(from, to - from);
  cursor_ = from;
}

std::size_t Terminal::before(std::size_t at) const {
  if (at > 0) --at;
  while (at > 0 && continues_character(line_[at])) --at;
  return at;
}

std::size_t Terminal::after(std::size_t at) const {
  if (at < line_.size()) ++at;
  while (at < line_.size() && continues_character(line_[at])) ++at;
  return at;
}

void Terminal::recall(int step) {
  if ((step < 0 && recalled_ == 0) || (step > 0 && recalled_ == history_.size())) return;
  if (recalled_ == history_.size()) draft_ = line_;
  recalled_ = step < 0 ? recalled_ - 1 : recalled_ + 1;
  line_ = recalled_ == history_.size() ? draft_ : history_[recalled_];
  cursor_ = line_.size();
}

void Terminal::refresh() const {
  // The last column stays free: a character there would wrap on some terminals.
  const std::size_t room = std::max<std::size_t>(screen_width(), prompt_.size() + 8) - prompt_.size() - 1;
  // From the cursor backwards as much as fits, then onwards: the cursor is always seen.
  std::string left;
  std::size_t left_columns = 0;
  for (std::size_t at = cursor_; at > 0;) {
    const std::size_t start = before(at);
    const Shown character = shown(std::string_view(line_).substr(start, at - start));
    if (left_columns + static_cast<std::size_t>(character.columns) > room) break;
    left.insert(0, character.text);
    left_columns += static_cast<std::size_t>(character.columns);
    at = start;
  }
  std::string right;
  for (std::size_t at = cursor_, columns = left_columns; at < line_.size();) {
    const std::size_t end = after(at);
    const Shown character = shown(std::string_view(line_).substr(at, end - at));
    columns += static_cast<std::size_t>(character.columns);
    if (columns > room) break;
    right += character.text;
    at = end;
  }
  const std::size_t column = prompt_.size() + left_columns;
  fmt::print("\r{}{}{}\x1b[K\r{}", prompt_, left, right, column > 0 ? fmt::format("\x1b[{}C", column) : "");
  std::fflush(stdout);
}

}  // namespace shoal::cli
