// A fault plan as a file: a JSON list of {"at", "nth", "rank", "action", "delay_ms"} (docs/execution.md,
// section 6). Only programs built with the preset `faults` take one.
//
// Thread-safety: pure.
// Errors: kInvalidArgument naming file and entry.

#pragma once

#include <filesystem>
#include <memory>

#include "comm/fault_plan.h"
#include "core/expected.h"

namespace shoal::cli {

#ifdef SHOAL_FAULTS
inline constexpr bool kTakesFaults = true;
#else
inline constexpr bool kTakesFaults = false;
#endif

Expected<std::shared_ptr<comm::FaultPlan>> read_fault_file(const std::filesystem::path& file);

}  // namespace shoal::cli
