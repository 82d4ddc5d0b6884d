#include "cli/rank_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/process_end.h"
#include "core/log.h"

extern char** environ;

namespace shoal::cli {
namespace {

// Where a rank finds the token.
constexpr int kTokenDescriptor = 3;

// The read end; the token fits into the pipe whether anybody reads or not.
Expected<int> pipe_with(const std::string& secret) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Status(ErrorCode::kIo, fmt::format("no pipe for a rank: {}", std::strerror(errno)));
  const bool written = ::write(ends[1], secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
  ::close(ends[1]);
  if (written) return ends[0];
  ::close(ends[0]);
  return Status(ErrorCode::kIo, "a rank's pipe takes nothing");
}

// What SIGKILL takes at most: a process in the kernel's hands, on a disk that does not answer, outlives it.
constexpr std::chrono::seconds kKillTime{5};

struct SpawnSettings {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnSettings(int token) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    // What a rank says, it says in the log: standard output is the head's.
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, token, kTokenDescriptor);
    // Not the server's sockets: a port would live on in its ranks.
    posix_spawn_file_actions_addclosefrom_np(&files, kTokenDescriptor + 1);
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
};

}  // namespace

ProcessLauncher::~ProcessLauncher() { finish(now()); }

Status ProcessLauncher::launch(const comm::Endpoint& head, const wire::ClusterToken& token,
                               std::int32_t rank) {
  // One that is lost may be hung: it is not waited for.
  const auto earlier =
      std::ranges::find_if(processes_, [&](const Process& process) { return process.rank == rank; });
  if (earlier != processes_.end()) {
    end(*earlier, now());
    processes_.erase(earlier);
  }
  SHOAL_ASSIGN(token_end, pipe_with(token.secret()));
  std::vector<std::string> words = {"shoal",       "rank",
                                    "--join",      comm::to_string(head),
                                    "--rank",      std::to_string(rank),
                                    "--log-level", log_level_,
                                    "--token-fd",  std::to_string(kTokenDescriptor)};
  if (!host_.empty()) words.insert(words.end(), {"--host-id", host_});
  // One that has been harmed is done with it, but its carrier stays of a kind with the others'.
  if (!fault_plan_.empty()) {
    const bool again = std::ranges::find(launched_, rank) != launched_.end();
    words.insert(words.end(), {again ? "--no-more-faults" : "--fault-plan", again ? "true" : fault_plan_});
    launched_.push_back(rank);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const SpawnSettings settings(token_end);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, "/proc/self/exe", &settings.files, &settings.attributes, arguments.data(), environ);
  ::close(token_end);
  if (error != 0)
    return {ErrorCode::kIo, fmt::format("rank {} cannot be started: {}", rank, std::strerror(error))};
  processes_.push_back({pid, rank});
  return {};
}

std::optional<std::string> ProcessLauncher::ended() {
  for (auto it = processes_.begin(); it != processes_.end(); ++it) {
    int status = 0;
    if (::waitpid(it->pid, &status, WNOHANG) != it->pid) continue;
    const std::string sentence = fmt::format("rank {} (process {}) {} before all ranks had joined", it->rank,
                                             it->pid, how_it_ended(status));
    processes_.erase(it);
    return sentence;
  }
  return std::nullopt;
}

void ProcessLauncher::finish(TimePoint deadline) {
  for (const Process& process : processes_) end(process, deadline);
  processes_.clear();
}

// By itself, or by force after the deadline.
void ProcessLauncher::end(const Process& process, TimePoint deadline) {
  if (!await_end(process.pid, deadline)) {
    ::kill(process.pid, SIGKILL);
    if (!await_end(process.pid, now() + kKillTime))
      log(LogLevel::kWarn, "rank.unkillable", "rank={} pid={}", process.rank, process.pid);
  }
  ::waitpid(process.pid, nullptr, WNOHANG);
}

}  // namespace shoal::cli
