#include "cli/stop_signals.h"

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

}  // namespace shoal::cli
