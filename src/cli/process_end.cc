#include "cli/process_end.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace shoal::cli {
namespace {

// Where the system gives no descriptor of a process (a sandbox that forbids it), it is looked at so often.
constexpr std::chrono::milliseconds kLook{20};

bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

}  // namespace

bool await_end(pid_t child, TimePoint deadline) {
  // By number: glibc 2.36's header declares pidfd_open with C++ linkage.
  const int ending = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  while (!has_ended(child) && now() < deadline) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now());
    if (ending < 0) left = std::min(left, kLook);
    pollfd waited{ending, POLLIN, 0};  // one below 0 is passed over: poll() then only lets the time go by
    ::poll(&waited, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
  }
  if (ending >= 0) ::close(ending);
  return has_ended(child);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace shoal::cli
