#include "cli/stop_signals.h"

#include <atomic>
#include <cstdlib>
#include <thread>

namespace shoal::cli {

StopSignals::StopSignals(std::initializer_list<int> signals) {
  sigemptyset(&signals_);
  for (const int signal : signals) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int StopSignals::wait(std::chrono::milliseconds time) const {
  const timespec limit{time.count() / 1000, (time.count() % 1000) * 1'000'000};
  const int got = sigtimedwait(&signals_, nullptr, &limit);
  return got > 0 ? got : 0;
}

bool StopSignals::run_to_end(const std::function<bool()>& drain) const {
  std::atomic<bool> drained{false};
  std::thread impatient([&] {
    while (!drained.load()) {
      if (wait(std::chrono::milliseconds(100)) != 0) std::_Exit(1);
    }
  });
  const bool clean = drain();
  drained.store(true);
  impatient.join();
  return clean;
}

}  // namespace shoal::cli
