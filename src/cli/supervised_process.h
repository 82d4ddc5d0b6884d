// A process that is kept running: its output goes to a log file, and when it ends it is started again, at
// once the first time, then with pauses from 1 s doubled up to 30 s. A process that has run for a minute is
// new.
//
// Thread-safety: none.
// Ownership: owns the process. The destructor kills what still runs; where this process dies, it is asked to
//   end by the kernel.

#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"

namespace shoal::cli {

class SupervisedProcess {
 public:
  SupervisedProcess(std::string name, std::filesystem::path log, std::vector<std::string> command)
      : name_(std::move(name)), log_(std::move(log)), command_(std::move(command)) {}
  ~SupervisedProcess();
  SupervisedProcess(SupervisedProcess&& other) noexcept;
  SupervisedProcess(const SupervisedProcess&) = delete;
  SupervisedProcess& operator=(const SupervisedProcess&) = delete;

  const std::string& name() const { return name_; }
  const std::filesystem::path& log() const { return log_; }
  bool running() const { return pid_ > 0; }
  // Starts it where its pause is over. What cannot be started has a pause as what has ended.
  Status start_if_due();
  struct End {
    int code = 0;  // exit code; 128 + the signal that killed it
    std::string sentence;
    double pause = 0;  // seconds until it is started again
  };
  // Where it has ended since this was asked last. What it started and left behind in its process group ends
  // with it.
  std::optional<End> ended();
  // SIGKILL: to its whole process group; any other to the process alone.
  void signal(int number) const;
  // False where it still runs then.
  bool wait(TimePoint deadline);

 private:
  Status start();
  double next_pause();  // seconds
  std::string last_line() const;

  std::string name_;
  std::filesystem::path log_;
  std::vector<std::string> command_;
  pid_t pid_ = 0;
  off_t log_begin_ = 0;  // where what this run says begins
  TimePoint started_{};
  TimePoint due_{};
  int failures_ = 0;
};

}  // namespace shoal::cli
