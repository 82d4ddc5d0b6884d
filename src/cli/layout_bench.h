// `shoal bench engine MODEL --tp T --pp P`: tokens a second of an engine whose ranks serve it together,
// driven as a server drives it: requests in, plans in flight, tokens out.
//
// Thread-safety: none; run on the main thread.

#pragma once

#include <cstdint>

#include "cli/cli_layout.h"
#include "cli/cli_model.h"

namespace shoal::cli {

struct LayoutBench {
  ModelFlags model;
  LayoutFlags layout;
  std::int32_t prompt = 512;
  std::int32_t generate = 64;
  std::int32_t batch = 1;
  std::int32_t chunk = 0;  // tokens of prefill a step; 0: by time
  std::int32_t repeat = 5;
  bool json = false;
};

// Prints the report; the exit code.
int run_layout_bench(const LayoutBench& bench);

}  // namespace shoal::cli
