#include "cli/comm_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numbers>

#include "core/clock.h"

namespace shoal::cli {
namespace {

using comm::Purpose;

constexpr std::size_t kSmall = 8;
constexpr std::size_t kLarge = std::size_t{4} << 20;
constexpr int kSmallRounds = 400;
constexpr int kLargeRounds = 12;
constexpr std::size_t kMostHostBytes = 128;

// Seconds one way, the median of there and back; on `first` alone.
Expected<double> one_way(comm::Collectives& group, std::int32_t first, std::int32_t second,
                         std::span<std::byte> bytes, int rounds) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const TimePoint begin = now();
    if (group.group().index == first) {
      SHOAL_TRY(group.send(Purpose::kPp, second, bytes));
      SHOAL_TRY(group.receive(Purpose::kPp, second, bytes));
    } else {
      SHOAL_TRY(group.receive(Purpose::kPp, first, bytes));
      SHOAL_TRY(group.send(Purpose::kPp, first, bytes));
    }
    times.push_back(seconds_between(begin, now()) / 2);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The host's place among those there are, in the order of the ranks.
std::size_t host_number(const CommTopology& topology, std::size_t rank) {
  std::vector<std::string> seen;
  for (std::size_t r = 0; r <= rank; ++r) {
    if (std::find(seen.begin(), seen.end(), topology.hosts[r]) == seen.end())
      seen.push_back(topology.hosts[r]);
  }
  return static_cast<std::size_t>(
      std::distance(seen.begin(), std::find(seen.begin(), seen.end(), topology.hosts[rank])));
}

}  // namespace

Expected<std::vector<CommLink>> measure_links(const std::string& carrier, comm::Collectives& group) {
  std::vector<std::byte> bytes(kLarge);
  std::vector<CommLink> links;
  const std::int32_t ranks = group.group().size(), self = group.group().index;
  for (std::int32_t first = 0; first < ranks; ++first) {
    for (std::int32_t second = first + 1; second < ranks; ++second) {
      std::array<double, 2> seconds{};
      if (self == first || self == second) {
        const auto all = std::span(bytes);
        SHOAL_ASSIGN(small, one_way(group, first, second, all.first(kSmall), kSmallRounds));
        SHOAL_ASSIGN(large, one_way(group, first, second, all, kLargeRounds));
        seconds = {small, large};
      }
      SHOAL_TRY(group.broadcast(Purpose::kPlan, first, std::as_writable_bytes(std::span(seconds))));
      links.push_back(
          {carrier, first, second, seconds[0] * 1e6, static_cast<double>(kLarge) / seconds[1] / 1e9});
    }
  }
  return links;
}

Expected<std::vector<std::string>> gather_hosts(comm::Collectives& group, const std::string& own) {
  std::array<char, kMostHostBytes> mine{};
  std::memcpy(mine.data(), own.data(), std::min(own.size(), mine.size() - 1));
  const auto ranks = static_cast<std::size_t>(group.group().size());
  std::vector<std::array<char, kMostHostBytes>> all(ranks);
  std::vector<std::span<std::byte>> places;
  for (auto& each : all) places.push_back(std::as_writable_bytes(std::span(each)));
  SHOAL_TRY(group.all_gather(Purpose::kPlan, std::as_bytes(std::span(mine)), places));
  std::vector<std::string> hosts;
  for (auto& each : all) {
    each.back() = 0;
    hosts.emplace_back(each.data());
  }
  return hosts;
}

std::string topology_table(const CommTopology& topology) {
  std::string text;
  auto out = std::back_inserter(text);
  for (std::size_t rank = 0; rank < topology.hosts.size(); ++rank)
    fmt::format_to(out, "rank {:3}  host {} ({})\n", rank, host_number(topology, rank), topology.hosts[rank]);
  fmt::format_to(out, "{:8} {:>8} {:>10} {:>8}\n", "carrier", "ranks", "us", "GB/s");
  for (const CommLink& link : topology.links)
    fmt::format_to(out, "{:8} {:>8} {:>10.2f} {:>8.2f}\n", link.carrier,
                   fmt::format("{}-{}", link.from, link.to), link.microseconds, link.gb_per_s);
  return text;
}

std::string topology_svg(const CommTopology& topology) {
  static constexpr std::array kHosts = {"#1b6ac9", "#c9531b", "#2e8b57", "#8a3fb0", "#8a5a00", "#555555"};
  constexpr double kSize = 360, kRadius = 130;
  const std::size_t ranks = topology.hosts.size();
  std::vector<std::string> carriers;
  double fastest = 0;
  for (const CommLink& link : topology.links) {
    if (std::find(carriers.begin(), carriers.end(), link.carrier) == carriers.end())
      carriers.push_back(link.carrier);
    fastest = std::max(fastest, link.gb_per_s);
  }
  std::string text;
  auto out = std::back_inserter(text);
  const double width = kSize * static_cast<double>(std::max<std::size_t>(carriers.size(), 1));
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
                 "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{0}\" height=\"{1}\" "
                 "fill=\"white\"/>\n",
                 width, kSize + 30);
  for (std::size_t c = 0; c < carriers.size(); ++c) {
    const double left = kSize * static_cast<double>(c);
    const auto place = [&](std::size_t rank) {
      const double turn =
          2 * std::numbers::pi * static_cast<double>(rank) / static_cast<double>(ranks) - std::numbers::pi;
      return std::pair(left + kSize / 2 + kRadius * std::cos(turn),
                       30 + kSize / 2 + kRadius * std::sin(turn));
    };
    fmt::format_to(out, "<text x=\"{}\" y=\"22\" font-size=\"14\">{}</text>\n", left + 16, carriers[c]);
    for (const CommLink& link : topology.links) {
      if (link.carrier != carriers[c]) continue;
      const auto [x1, y1] = place(static_cast<std::size_t>(link.from));
      const auto [x2, y2] = place(static_cast<std::size_t>(link.to));
      fmt::format_to(out,
                     "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#999\" "
                     "stroke-width=\"{:.1f}\"/>\n",
                     x1, y1, x2, y2, 1 + 7 * link.gb_per_s / fastest);
      // A third of the way, so that lines that cross in the middle do not share their labels' place.
      fmt::format_to(out,
                     "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.1f} us, {:.1f} GB/s</text>\n",
                     x1 + (x2 - x1) * 0.4, y1 + (y2 - y1) * 0.4 - 6, link.microseconds, link.gb_per_s);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto [x, y] = place(rank);
      fmt::format_to(out,
                     "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"15\" fill=\"{2}\"/><text x=\"{0:.1f}\" "
                     "y=\"{3:.1f}\" text-anchor=\"middle\" fill=\"white\">{4}</text>\n",
                     x, y, kHosts[host_number(topology, rank) % kHosts.size()], y + 4, rank);
    }
  }
  return text + "</svg>\n";
}

}  // namespace shoal::cli
