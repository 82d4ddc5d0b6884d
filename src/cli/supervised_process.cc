#include "cli/supervised_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "cli/milliseconds.h"
#include "cli/process_end.h"

namespace shoal::cli {
namespace {

constexpr double kNewAfter = 60;      // seconds
constexpr double kLongestPause = 30;  // seconds
constexpr std::streamoff kTail = 4096;
constexpr std::chrono::seconds kKilledTime{10};
constexpr int kNotStarted = 127;

// After fork(): only what is safe there.
[[noreturn]] void become(char* const* arguments, int log, pid_t parent) {
  ::setpgid(0, 0);  // an interrupt typed at the terminal is for the supervisor
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execvp(arguments[0], arguments);
  const char* reason = ::strerrordesc_np(errno);
  const char* const parts[] = {arguments[0], ": ", reason == nullptr ? "cannot be started" : reason, "\n"};
  for (const char* part : parts) (void)!::write(STDERR_FILENO, part, std::strlen(part));
  ::_exit(kNotStarted);
}

}  // namespace

SupervisedProcess::SupervisedProcess(SupervisedProcess&& other) noexcept
    : name_(std::move(other.name_)),
      log_(std::move(other.log_)),
      command_(std::move(other.command_)),
      pid_(std::exchange(other.pid_, 0)),
      log_begin_(other.log_begin_),
      started_(other.started_),
      due_(other.due_),
      failures_(other.failures_) {}

SupervisedProcess::~SupervisedProcess() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  // Which ends it at once, but where the kernel holds it (a disk that does not answer): that one is left.
  await_end(pid_, now() + kKilledTime);
  ::waitpid(pid_, nullptr, WNOHANG);
}

Status SupervisedProcess::start_if_due() {
  if (running() || now() < due_) return {};
  const Status started = start();
  if (!started.ok()) due_ = now() + milliseconds_of(next_pause());
  return started;
}

Status SupervisedProcess::start() {
  // Not blocking: a pipe that nobody reads would keep the opener for ever.
  const int log = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (log < 0)
    return {ErrorCode::kIo, fmt::format("{} cannot be written: {}", log_.string(), std::strerror(errno))};
  struct stat info {};
  const bool known = ::fstat(log, &info) == 0;
  if (known && S_ISFIFO(info.st_mode)) {
    ::close(log);
    return {ErrorCode::kIo, fmt::format("{} cannot be the log: it is a pipe", log_.string())};
  }
  ::fcntl(log, F_SETFL, O_APPEND);
  log_begin_ = known ? info.st_size : 0;
  std::vector<char*> arguments;
  for (std::string& word : command_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(arguments.data(), log, parent);
  const int error = errno;
  ::close(log);
  if (pid < 0) return {ErrorCode::kIo, fmt::format("{} cannot be started: {}", name_, std::strerror(error))};
  ::setpgid(pid, pid);  // as it does itself: whoever comes first, a signal finds the group
  pid_ = pid;
  started_ = now();
  return {};
}

std::optional<SupervisedProcess::End> SupervisedProcess::ended() {
  if (!running()) return std::nullopt;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return std::nullopt;
  // What a start command leaves behind when it ends (a shell, its program) would hold ports and seats.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  if (seconds_between(started_, now()) >= kNewAfter) failures_ = 0;
  End end;
  end.pause = next_pause();
  due_ = now() + milliseconds_of(end.pause);
  end.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  const std::string last = WIFSIGNALED(status) ? "" : last_line();
  end.sentence = fmt::format("{} {}{}{}", name_, how_it_ended(status), last.empty() ? "" : ": ", last);
  return end;
}

double SupervisedProcess::next_pause() {
  const double pause = failures_ == 0 ? 0 : std::min(std::ldexp(0.5, std::min(failures_, 10)), kLongestPause);
  ++failures_;
  return pause;
}

void SupervisedProcess::signal(int number) const {
  // What asks for an end is for the process, which sees to its own; what takes it away, for all it started.
  if (running()) ::kill(number == SIGKILL ? -pid_ : pid_, number);
}

bool SupervisedProcess::wait(TimePoint deadline) {
  if (running() && !await_end(pid_, deadline)) return false;
  ended();
  return true;
}

// Of its log since it was started: what it said last usually says why it ended.
std::string SupervisedProcess::last_line() const {
  std::ifstream file(log_, std::ios::ate | std::ios::binary);
  if (!file) return {};
  file.seekg(std::max<std::streamoff>(log_begin_, static_cast<std::streamoff>(file.tellg()) - kTail));
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace shoal::cli
