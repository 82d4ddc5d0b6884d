// A file with one worker's URL a line, looked at every second: whoever stands in it is a worker, whoever no
// longer does leaves.
//
// Thread-safety: of the gateway's loop, but for read_first(), before it.
// Errors: a file that cannot be read, or holds a line that is no URL, changes nothing; the log says why,
// once.

#pragma once

#include <filesystem>
#include <string>

#include "core/clock.h"
#include "core/expected.h"
#include "gateway/worker_registry.h"

namespace shoal::gateway {

class WorkerFile {
 public:
  explicit WorkerFile(std::filesystem::path path) : path_(std::move(path)) {}

  // At the start: a file that cannot be used is an error.
  Status read_first(WorkerRegistry& registry);
  void look(WorkerRegistry& registry, TimePoint now);

 private:
  Status take(WorkerRegistry& registry, const std::string& text);

  const std::filesystem::path path_;
  std::string text_;  // as read last
  std::string complaint_;
  TimePoint next_{};
};

}  // namespace shoal::gateway
