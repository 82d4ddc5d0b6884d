// Step plans and results as bytes: docs/wire.md, section 5.
//
// Thread-safety: pure functions.
// Errors: decoding fails with kCorrupt where the bytes are not exactly one message.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/expected.h"
#include "layout/step_plan.h"

namespace shoal::wire {

std::vector<std::byte> encode(const StepPlan& plan);
Expected<StepPlan> decode_step_plan(std::span<const std::byte> bytes);

std::vector<std::byte> encode(const StepResult& result);
Expected<StepResult> decode_step_result(std::span<const std::byte> bytes);

}  // namespace shoal::wire
