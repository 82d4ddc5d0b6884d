#include "core/available_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace shoal {
namespace {

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

}  // namespace shoal
