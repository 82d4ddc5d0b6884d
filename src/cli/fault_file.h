// A fault plan as a file: a JSON list of {"at", "nth", "rank", "action", "delay_ms"} (docs/execution.md,
// section 6). Only programs built with the preset `faults` take one.
//
// Thread-safety: pure.
// Errors: kInvalidArgument naming file and entry, for one that would never happen too; kIo where the file
//   cannot be read.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "comm/fault_plan.h"
#include "core/expected.h"

namespace shoal::cli {

#ifdef SHOAL_FAULTS
inline constexpr bool kTakesFaults = true;
#else
inline constexpr bool kTakesFaults = false;
#endif

// ranks: of the layout, where that is known.
Expected<std::shared_ptr<comm::FaultPlan>> read_fault_file(const std::filesystem::path& file,
                                                           std::optional<std::int32_t> ranks);

}  // namespace shoal::cli
