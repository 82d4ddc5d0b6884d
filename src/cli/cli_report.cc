#include "cli/cli_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/thread_pool.h"
#include "kernels/isa.h"

namespace shoal::cli {

namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

nlohmann::ordered_json one_ceiling(const kernels::Ceiling& ceiling, const char* unit) {
  return {{"unit", unit}, {"alone", ceiling.alone}, {"together", ceiling.together}};
}

// Operations of bytes are not floating-point ones.
const char* rate_unit(const kernels::Ceiling& ceiling) {
  return ceiling.name.find("int8") != std::string::npos ? "TOP/s" : "TFLOP/s";
}

std::string line_of(const kernels::Ceiling& ceiling, const char* unit) {
  const auto [least, most] = std::minmax_element(ceiling.alone.begin(), ceiling.alone.end());
  return fmt::format("  {:9} {:7.2f} {} on all threads, {:.2f} to {:.2f} on one ({:.2f}x)\n", ceiling.name,
                     ceiling.together, unit, *least, *most, ceiling.scaling());
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

nlohmann::ordered_json to_json(const kernels::Ceilings& ceilings) {
  nlohmann::ordered_json json{{"read", one_ceiling(ceilings.read, "GB/s")}};
  for (const kernels::Ceiling& ceiling : ceilings.compute) {
    json[ceiling.name] = one_ceiling(ceiling, rate_unit(ceiling));
  }
  return json;
}

std::string to_text(const kernels::Ceilings& ceilings) {
  std::string text = "Ceilings of this machine, best of 5:\n" + line_of(ceilings.read, "GB/s");
  for (const kernels::Ceiling& ceiling : ceilings.compute) text += line_of(ceiling, rate_unit(ceiling));
  return text;
}

double drift_of(const kernels::Ceilings& before, const kernels::Ceilings& after) {
  const auto change = [](const kernels::Ceiling& a, const kernels::Ceiling& b) {
    return std::abs(b.together - a.together) / a.together;
  };
  double drift = change(before.read, after.read);
  for (const kernels::Ceiling& ceiling : before.compute) {
    if (const kernels::Ceiling* same = after.find(ceiling.name))
      drift = std::max(drift, change(ceiling, *same));
  }
  return drift;
}

nlohmann::ordered_json to_json(const kernels::Ceilings& before, const kernels::Ceilings& after) {
  return {{"before", to_json(before)}, {"after", to_json(after)}, {"drift", drift_of(before, after)}};
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
