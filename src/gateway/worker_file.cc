#include "gateway/worker_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "core/log.h"

namespace shoal::gateway {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
constexpr std::size_t kMaxBytes = 16 * 1024 * 1024;

Expected<std::string> read_file(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe must not hold up the loop that every request runs on.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return Status(ErrorCode::kIo, fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  const std::unique_ptr<const int, void (*)(const int*)> closer(&file,
                                                                [](const int* open) { ::close(*open); });
  struct stat about {};
  if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
    return Status(ErrorCode::kInvalidArgument, fmt::format("{}: is no regular file", path.string()));
  std::string text;
  char block[4096];
  for (;;) {
    const ssize_t got = ::read(file, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return Status(ErrorCode::kIo,
                    fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
    if (got == 0) break;
    text.append(block, static_cast<std::size_t>(got));
    if (text.size() > kMaxBytes)
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("{}: exceeds {} bytes", path.string(), kMaxBytes));
  }
  return text;
}

}  // namespace

Status WorkerFile::read_first(WorkerRegistry& registry) {
  SHOAL_ASSIGN(text, read_file(path_));
  return take(registry, text);
}

void WorkerFile::look(WorkerRegistry& registry, TimePoint now) {
  if (now < next_) return;
  next_ = now + kLookEvery;
  const auto text = read_file(path_);
  if (text.ok() && *text == text_) return;
  const Status status = text.ok() ? take(registry, *text) : text.error();
  if (!status.ok() && status.message() != complaint_)
    log(LogLevel::kWarn, "workers.file_unusable", "why=\"{}\"", status.message());
  complaint_ = status.message();
}

Status WorkerFile::take(WorkerRegistry& registry, const std::string& text) {
  std::vector<std::string> urls;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const auto end = line.find_last_not_of(" \t\r");
    urls.push_back(line.substr(begin, end - begin + 1));
    const auto url = wire::Url::parse(urls.back());
    if (!url.ok())
      return {ErrorCode::kInvalidArgument,
              fmt::format("{}:{}: {}", path_.string(), number, url.error().message())};
  }
  std::set<WorkerPtr> named;
  for (const std::string& url : urls) {
    SHOAL_ASSIGN(worker, registry.add(url, WorkerSource::kFile));
    named.insert(worker);
  }
  const std::vector<WorkerPtr> workers = registry.workers();
  for (const WorkerPtr& worker : workers) {
    if (worker->source == WorkerSource::kFile && !worker->leaving && !named.contains(worker))
      registry.leave(worker);
  }
  text_ = text;
  return {};
}

}  // namespace shoal::gateway
