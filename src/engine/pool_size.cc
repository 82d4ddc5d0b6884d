#include "engine/pool_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace shoal::engine {
namespace {

constexpr std::int64_t kMaxPages = std::numeric_limits<std::int32_t>::max() / 2;

std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  // "max", v2's word for no limit, does not parse.
  return file >> value ? value : std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t field_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + " ") || line.starts_with(name + ":"))
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return 0;
}

// What one group's limit leaves; the largest number where it has none.
std::uint64_t left_in_group(const std::string& folder) {
  constexpr auto kNone = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t limit = number_in(folder + "/memory.max");
  std::uint64_t used = number_in(folder + "/memory.current");
  std::string cache_field = "inactive_file";
  if (limit == kNone) {
    limit = number_in(folder + "/memory.limit_in_bytes");
    used = number_in(folder + "/memory.usage_in_bytes");
    cache_field = "total_inactive_file";
  }
  // v1 writes "no limit" as almost 2^63.
  if (limit == kNone || used == kNone || limit > kNone / 4) return kNone;
  used -= std::min(used, field_in(folder + "/memory.stat", cache_field));
  return limit - std::min(limit, used);
}

}  // namespace

std::size_t available_memory() {
  std::uint64_t least = field_in("/proc/meminfo", "MemAvailable") * 1024;
  if (least == 0) least = std::numeric_limits<std::uint64_t>::max();
  std::ifstream membership("/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(second + 1); !path.empty(); path.resize(path.find_last_of('/'))) {
      least = std::min(least, left_in_group(root + path));
      if (path == "/" || path.find('/') == std::string::npos) break;
    }
    least = std::min(least, left_in_group(root));
  }
  return static_cast<std::size_t>(least);
}

Expected<std::int64_t> pool_pages(const PoolRequest& request) {
  const auto page_bytes = static_cast<std::int64_t>(std::max<std::size_t>(request.page_bytes, 1));
  if (request.kv_pages < 0 || request.kv_pages > kMaxPages)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--kv-pages {}: it must be between 1 and {}", request.kv_pages, kMaxPages),
                  "--kv-pages");
  if (request.kv_pages > 0) {
    if (request.kv_pages > (std::int64_t{1} << 46) / page_bytes)
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("--kv-pages {}: a page takes {} bytes, so they exceed the address space",
                                request.kv_pages, page_bytes),
                    "--kv-pages");
    return request.kv_pages;
  }
  if (request.kv_bytes != 0) {
    if (request.kv_bytes < page_bytes || request.kv_bytes > (std::int64_t{1} << 46))
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("--kv-bytes {}: one page of this model's KV takes {} bytes", request.kv_bytes,
                                page_bytes),
                    "--kv-bytes");
    return std::min(kMaxPages, request.kv_bytes / page_bytes);
  }
  const auto available =
      static_cast<std::int64_t>(std::min<std::size_t>(request.available, std::size_t{1} << 46));
  const std::int64_t usable = available / 10 * 9 / page_bytes;
  const std::int64_t most = request.context_pages * std::max(request.max_sequences, 1);
  std::int64_t pages = std::min(available / 2 / page_bytes, most);
  pages = std::max(pages, std::min(request.context_pages, usable));
  if (pages < 1)
    return Status(ErrorCode::kExhausted,
                  fmt::format("no memory for the KV cache: one page takes {} bytes and {} are available; a "
                              "smaller model or fewer other programs would help",
                              page_bytes, available));
  return std::min(pages, kMaxPages);
}

}  // namespace shoal::engine
