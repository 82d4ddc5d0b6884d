#include "cli/fault_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal::cli {
namespace {

// The sentence where an entry is none, or would never happen.
Expected<comm::Fault> fault_of(const nlohmann::json& entry, std::optional<std::int32_t> ranks) {
  const auto bad = [](const std::string& sentence) { return Status(ErrorCode::kInvalidArgument, sentence); };
  if (!entry.is_object()) return bad("it must be an object");
  comm::Fault fault;
  for (const auto& [key, value] : entry.items()) {
    if (key == "at" && value.is_string()) {
      const auto at = comm::fault_point_from_name(value.get<std::string>());
      if (!at) return bad("'at' must be transfer, join, loaded, start, ready or plan");
      fault.at = *at;
    } else if (key == "action" && value.is_string()) {
      const auto action = comm::fault_action_from_name(value.get<std::string>());
      if (!action)
        return bad("'action' must be kill, stop, cut, drop, delay, duplicate, truncate or corrupt");
      fault.action = *action;
    } else if (key == "nth" && value.is_number_unsigned() && value > 0) {
      fault.nth = value.get<std::uint64_t>();
    } else if (key == "rank" && value.is_number_unsigned() && value < 65536) {
      fault.rank = value.get<std::int32_t>();
    } else if (key == "delay_ms" && value.is_number_unsigned() && value > 0 && value <= 600'000) {
      fault.delay = std::chrono::milliseconds(value.get<std::int64_t>());
    } else {
      return bad(fmt::format("'{}' is unknown, or its value no such thing", key));
    }
  }
  if (!entry.contains("at") || !entry.contains("rank") || !entry.contains("action"))
    return bad("it needs 'at', 'rank' and 'action'");
  if (fault.at != comm::FaultPoint::kTransfer && !comm::harms_any_point(fault.action))
    return bad(fmt::format("'{}' can be done to a transfer only", entry["action"].get<std::string>()));
  if ((fault.action == comm::FaultAction::kDelay) != entry.contains("delay_ms"))
    return bad(entry.contains("delay_ms") ? "'delay_ms' is for the action 'delay' alone"
                                          : "'delay' needs 'delay_ms', from 1 to 600000");
  if (ranks && fault.rank >= *ranks)
    return bad(fmt::format("there is no rank {}: the layout has {}, from 0", fault.rank, *ranks));
  if (fault.rank == 0 && (fault.at == comm::FaultPoint::kJoin || fault.at == comm::FaultPoint::kLoaded))
    return bad(fmt::format("rank 0 never comes to '{}': it is the one that others join",
                           entry["at"].get<std::string>()));
  return fault;
}

}  // namespace

Expected<std::shared_ptr<comm::FaultPlan>> read_fault_file(const std::filesystem::path& file,
                                                           std::optional<std::int32_t> ranks) {
  std::ifstream stream(file);
  // A folder opens, and fails when it is read.
  if (!stream || (stream.peek(), stream.bad()))
    return Status(ErrorCode::kIo, fmt::format("{} cannot be read: {}", file.string(), std::strerror(errno)));
  const auto parsed = nlohmann::json::parse(stream, nullptr, false);
  if (!parsed.is_array())
    return Status(ErrorCode::kInvalidArgument, fmt::format("{} is no JSON list of faults", file.string()));
  std::vector<comm::Fault> faults;
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    auto fault = fault_of(parsed[i], ranks);
    if (!fault.ok())
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("{}, fault {}: {}", file.string(), i + 1, fault.error().message()));
    faults.push_back(*fault);
  }
  return std::make_shared<comm::FaultPlan>(std::move(faults));
}

}  // namespace shoal::cli
