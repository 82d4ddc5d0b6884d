#include "cli/up.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "cli/cli_model.h"
#include "cli/cluster_file.h"
#include "cli/cluster_supervisor.h"
#include "cli/error_output.h"
#include "cli/milliseconds.h"
#include "cli/real_range.h"
#include "cli/stop_signals.h"
#include "cli/token_file.h"

namespace shoal::cli {
namespace {

constexpr std::chrono::milliseconds kTick{100};

// Held by the process that keeps a cluster running. A record lock: the kernel says who holds it, so that no
// number that an earlier process has left behind is ever taken for that one's.
class RunLock {
 public:
  // kNotFound: there is no such file.
  static Expected<RunLock> open(const ClusterFile& cluster, int flags) {
    const std::string file = (cluster.logs / "up.lock").string();
    const int fd = ::open(file.c_str(), flags | O_CLOEXEC, 0644);
    if (fd < 0)
      return Status(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                    fmt::format("{} cannot be opened: {}", file, std::strerror(errno)));
    return RunLock(file, fd);
  }
  ~RunLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  RunLock(RunLock&& other) noexcept : file_(std::move(other.file_)), fd_(std::exchange(other.fd_, -1)) {}
  RunLock& operator=(RunLock&&) = delete;

  // No process: this one's now, until it ends. Else whose it is.
  Expected<std::optional<pid_t>> take() const {
    for (int attempt = 0; attempt < 100; ++attempt) {
      struct flock lock = whole();
      if (::fcntl(fd_, F_SETLK, &lock) == 0) return std::optional<pid_t>();
      if (errno != EACCES && errno != EAGAIN) return failure();
      SHOAL_ASSIGN(pid, holder());
      if (pid) return pid;  // else it has been given back in between
    }
    return Status(ErrorCode::kUnavailable, fmt::format("{} changes hands all the time", file_));
  }
  // A number below 1: a process that this system, or this container, has no number for.
  Expected<std::optional<pid_t>> holder() const {
    struct flock lock = whole();
    if (::fcntl(fd_, F_GETLK, &lock) != 0) return failure();
    return lock.l_type == F_UNLCK ? std::optional<pid_t>() : lock.l_pid;
  }

 private:
  RunLock(std::string file, int fd) : file_(std::move(file)), fd_(fd) {}
  static struct flock whole() {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return lock;
  }
  Status failure() const {
    return {ErrorCode::kIo, fmt::format("{} cannot be locked: {}", file_, std::strerror(errno))};
  }

  std::string file_;
  int fd_;
};

// A line with the time; on a terminal also how long a start takes.
class Report {
 public:
  void say(const std::string& line) {
    clear();
    char time[32];
    const std::time_t seconds = std::time(nullptr);
    std::tm parts{};
    std::strftime(time, sizeof time, "%H:%M:%S", ::localtime_r(&seconds, &parts));
    fmt::print("{} {}\n", time, line);
    std::fflush(stdout);
  }
  void progress(const ClusterSupervisor& cluster) {
    if (!terminal_ || cluster.state() != ClusterState::kStarting) return;
    print_error("\r{} of {} processes run, {:.0f} s ", cluster.running(), cluster.size(),
                seconds_between(begin_, now()));
    shown_ = true;
  }

 private:
  void clear() {
    if (std::exchange(shown_, false)) print_error("\r\x1b[K");
  }
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  TimePoint begin_ = now();
};

int run_up(const std::string& file) {
  const StopSignals signals({SIGTERM, SIGINT, SIGHUP});
  auto cluster = read_cluster_file(file);
  if (!cluster.ok()) return complain("up", cluster.error());
  std::error_code failed;
  std::filesystem::create_directories(cluster->logs, failed);
  if (failed)
    return complain("up", {ErrorCode::kIo, fmt::format("{}: {}", cluster->logs.string(), failed.message())});
  auto lock = RunLock::open(*cluster, O_RDWR | O_CREAT);
  if (!lock.ok()) return complain("up", lock.error());
  const auto other = lock->take();
  if (!other.ok()) return complain("up", other.error());
  if (*other)
    return complain("up",
                    {ErrorCode::kUnavailable, fmt::format("{} is up already, by process {}", file, **other)});
  if (cluster->needs_token()) {
    if (const Status token = ensure_token(cluster->token_file); !token.ok()) return complain("up", token);
  }
  std::error_code ignored;
  const std::string shoal = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  Report report;
  auto supervisor =
      ClusterSupervisor::make(*cluster, shoal, [&](const std::string& line) { report.say(line); });
  if (!supervisor.ok()) return complain("up", supervisor.error());
  Status status;
  while (status.ok() && signals.wait(kTick) == 0) {
    status = supervisor->tick();
    report.progress(*supervisor);
  }
  if (status.ok()) report.say("stopping: the server finishes what runs; a second signal ends it now");
  const bool clean =
      supervisor->stop([&] { return !status.ok() || signals.wait(std::chrono::milliseconds(0)) != 0; });
  if (!status.ok()) return complain("up", status);
  report.say(clean ? "down: all have ended" : "down: some had to be killed");
  return clean ? 0 : 1;
}

int run_down(const std::string& file, double seconds) {
  auto cluster = read_cluster_file(file);
  if (!cluster.ok()) return complain("down", cluster.error());
  const Status not_up{ErrorCode::kUnavailable, fmt::format("{} is not up", file)};
  auto lock = RunLock::open(*cluster, O_RDONLY);
  if (!lock.ok())
    return complain("down", lock.error().code() == ErrorCode::kNotFound ? not_up : lock.error());
  const auto first = lock->holder();
  if (!first.ok()) return complain("down", first.error());
  if (!*first) return complain("down", not_up);
  const pid_t pid = **first;
  if (pid <= 0)
    return complain("down", {ErrorCode::kUnavailable,
                             fmt::format("{} is up on another machine or in another container", file)});
  // ESRCH: it has just ended by itself.
  if (::kill(pid, SIGTERM) != 0 && errno != ESRCH)
    return complain("down", {ErrorCode::kIo,
                             fmt::format("process {} cannot be told to end: {}", pid, std::strerror(errno))});
  const TimePoint deadline = now() + milliseconds_of(seconds);
  for (;;) {
    const auto holder = lock->holder();
    if (!holder.ok()) return complain("down", holder.error());
    if (*holder != pid) return 0;  // nobody's, or already that of an `up` begun since
    if (now() >= deadline)
      return complain(
          "down", {ErrorCode::kDeadline,
                   fmt::format("process {} has been told to end and still runs after {} s", pid, seconds)});
    std::this_thread::sleep_for(kTick);
  }
}

}  // namespace

void add_up(CLI::App& app, int& exit_code) {
  auto file = std::make_shared<std::string>();
  CLI::App* up = app.add_subcommand("up", "Start the cluster that a file describes and keep it running");
  up->add_option("file", *file, "The cluster, as TOML")->required();
  up->callback([file, &exit_code] { exit_code = run_up(*file); });
}

void add_down(CLI::App& app, int& exit_code) {
  struct DownFlags {
    std::string file;
    double seconds = 120;
  };
  auto flags = std::make_shared<DownFlags>();
  CLI::App* down = app.add_subcommand("down", "End a cluster that `shoal up` keeps running");
  down->add_option("file", flags->file, "The cluster, as TOML")->required();
  down->add_option("--seconds", flags->seconds, "How long it may take")
      ->capture_default_str()
      ->check(real_range(0.0, 86400.0));
  down->callback([flags, &exit_code] { exit_code = run_down(flags->file, flags->seconds); });
}

}  // namespace shoal::cli
