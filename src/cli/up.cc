#include "cli/up.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>

#include "cli/cli_model.h"
#include "cli/cluster_file.h"
#include "cli/cluster_supervisor.h"
#include "wire/cluster_token.h"

namespace shoal::cli {
namespace {

constexpr std::chrono::milliseconds kTick{100};

// Held by the process that keeps a cluster running; the file holds its number.
class RunLock {
 public:
  static Expected<RunLock> open(const ClusterFile& cluster) {
    const std::string file = (cluster.logs / "up.lock").string();
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
      return Status(ErrorCode::kIo, fmt::format("{} cannot be opened: {}", file, std::strerror(errno)));
    return RunLock(fd);
  }
  ~RunLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RunLock& operator=(RunLock&&) = delete;

  bool take() const {
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) return false;
    const std::string pid = std::to_string(::getpid());
    return ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, pid.data(), pid.size(), 0) > 0;
  }
  // Of whoever holds it.
  pid_t holder() const {
    char text[32] = {};
    const ssize_t n = ::pread(fd_, text, sizeof text - 1, 0);
    pid_t pid = 0;
    if (n > 0) std::from_chars(text, text + n, pid);
    return pid;
  }

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  int fd_;
};

// A cluster that has none gets a token of its own, which only its owner reads.
Status ensure_token(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return wire::ClusterToken::load(file).status();
  SHOAL_ASSIGN(token, wire::ClusterToken::draw());
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const std::string text = token.secret() + "\n";
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (written) return {};
  return {ErrorCode::kIo, fmt::format("{} cannot be written: {}", file.string(), std::strerror(error))};
}

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
    fmt::print(stderr, "\r{} of {} processes run, {:.0f} s ", cluster.running(), cluster.size(),
               seconds_between(begin_, now()));
    shown_ = true;
  }

 private:
  void clear() {
    if (std::exchange(shown_, false)) fmt::print(stderr, "\r\x1b[K");
  }
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  TimePoint begin_ = now();
};

class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    signal(SIGPIPE, SIG_IGN);
  }
  bool come_within(std::chrono::milliseconds time) const {
    const timespec limit{time.count() / 1000, (time.count() % 1000) * 1'000'000};
    return sigtimedwait(&signals_, nullptr, &limit) > 0;
  }

 private:
  sigset_t signals_;
};

int run_up(const std::string& file) {
  const StopSignals signals;
  auto cluster = read_cluster_file(file);
  if (!cluster.ok()) return complain("up", cluster.error());
  std::error_code failed;
  std::filesystem::create_directories(cluster->logs, failed);
  if (failed)
    return complain("up", {ErrorCode::kIo, fmt::format("{}: {}", cluster->logs.string(), failed.message())});
  auto lock = RunLock::open(*cluster);
  if (!lock.ok()) return complain("up", lock.error());
  if (!lock->take())
    return complain("up", {ErrorCode::kUnavailable,
                           fmt::format("{} is up already, by process {}", file, lock->holder())});
  if (cluster->hosts.size() > 1) {
    if (const Status token = ensure_token(cluster->token_file); !token.ok()) return complain("up", token);
  }
  std::error_code ignored;
  const std::string shoal = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  Report report;
  auto supervisor =
      ClusterSupervisor::make(*cluster, shoal, [&](const std::string& line) { report.say(line); });
  if (!supervisor.ok()) return complain("up", supervisor.error());
  Status status;
  while (status.ok() && !signals.come_within(kTick)) {
    status = supervisor->tick();
    report.progress(*supervisor);
  }
  if (status.ok()) report.say("stopping: the server finishes what runs; a second signal ends it now");
  const bool clean =
      supervisor->stop([&] { return !status.ok() || signals.come_within(std::chrono::milliseconds(0)); });
  if (!status.ok()) return complain("up", status);
  report.say(clean ? "down: all have ended" : "down: some had to be killed");
  return clean ? 0 : 1;
}

int run_down(const std::string& file, double seconds) {
  auto cluster = read_cluster_file(file);
  if (!cluster.ok()) return complain("down", cluster.error());
  auto lock = RunLock::open(*cluster);
  const pid_t pid = lock.ok() ? lock->holder() : 0;
  if (!lock.ok() || lock->take())
    return complain("down", {ErrorCode::kUnavailable, fmt::format("{} is not up", file)});
  if (pid <= 0 || ::kill(pid, SIGTERM) != 0)
    return complain("down", {ErrorCode::kIo,
                             fmt::format("process {} cannot be told to end: {}", pid, std::strerror(errno))});
  const TimePoint deadline = now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  while (!lock->take()) {
    if (now() >= deadline)
      return complain(
          "down", {ErrorCode::kDeadline,
                   fmt::format("process {} has been told to end and still runs after {} s", pid, seconds)});
    std::this_thread::sleep_for(kTick);
  }
  return 0;
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
  down->add_option("--seconds", flags->seconds, "How long it may take")->capture_default_str();
  down->callback([flags, &exit_code] { exit_code = run_down(flags->file, flags->seconds); });
}

}  // namespace shoal::cli
