#include "cli/cli_report.h"

#include <emmintrin.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "kernels/isa.h"
#include "tensor/buffer.h"

namespace shoal::cli {

namespace {

constexpr std::size_t kReadBytes = std::size_t{512} << 20;
constexpr int kStreams = 4;
constexpr int kPasses = 3;

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

// Reads `lines` cache lines from each of four streams. The sum keeps the loads alive.
std::int64_t read_streams(const std::byte* begin, std::size_t lines) {
  __m128i sum = _mm_setzero_si128();
  const std::size_t stream_bytes = lines * 64;
  for (std::size_t line = 0; line < lines; ++line) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const auto* at = reinterpret_cast<const __m128i*>(
          begin + static_cast<std::size_t>(stream) * stream_bytes + line * 64);
      for (int i = 0; i < 4; ++i) sum = _mm_add_epi64(sum, _mm_load_si128(at + i));
    }
  }
  return _mm_cvtsi128_si64(sum);
}

}  // namespace

nlohmann::ordered_json machine_facts() {
  const auto isa = kernels::chosen_isa();
  const auto pages = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  return {{"cpu", cpu_name()},
          {"usable_cores", usable_cores()},
          {"isa", isa ? std::string(kernels::isa_name(*isa)) : "unknown"},
          {"memory_bytes", pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
}

Expected<double> read_bandwidth(ThreadPool& pool) {
  SHOAL_ASSIGN(buffer, Buffer::allocate(kReadBytes, "the bandwidth measurement"));
  const std::size_t share =
      kReadBytes / static_cast<std::size_t>(pool.size()) / (64 * kStreams) * (64 * kStreams);
  // Written first: pages that were never touched are all one page of zeros.
  pool.run([&](int thread) {
    std::fill_n(buffer.data() + static_cast<std::size_t>(thread) * share, share, std::byte{1});
  });
  std::atomic<std::int64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const TimePoint begin = now();
    pool.run([&](int thread) {
      sink += read_streams(buffer.data() + static_cast<std::size_t>(thread) * share, share / (64 * kStreams));
    });
    const double bytes = static_cast<double>(share) * pool.size();
    best = std::max(best, bytes / seconds_between(begin, now()) / 1e9);
  }
  return best;
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

nlohmann::ordered_json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.least}, {"max", spread.most}};
}

}  // namespace shoal::cli
