// Signals that ask a command to end, taken by waiting for them: they are blocked in every thread, so that no
// handler runs anywhere.
//
// Thread-safety: made before other threads start; wait() from any thread, each signal is given to one.
// Ownership: what it blocks stays blocked. SIGPIPE is ignored from then on: a peer that has gone is an error
//   code, not a death.

#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <initializer_list>

namespace shoal::cli {

class StopSignals {
 public:
  explicit StopSignals(std::initializer_list<int> signals);
  // The next signal within the time, or 0.
  int wait(std::chrono::milliseconds time) const;
  // Runs `drain` and says what it says; a further signal meanwhile ends the process at once, with 1.
  bool run_to_end(const std::function<bool()>& drain) const;

 private:
  sigset_t signals_;
};

}  // namespace shoal::cli
