// `shoal bench handover MODEL`: what it costs to have one worker compute a prompt and another one answer: how
// fast KV moves beside what the path gives, what of it is waited for, and what that does to the first tokens.
//
// Thread-safety: one thread, main's.
// Ownership: `bench` and exit_code are borrowed, until parsing is over.
// Exit codes: 0; 1 where the model cannot be loaded or run; 2 usage.

#pragma once

#include <optional>
#include <string>

#include "layout/layout.h"

namespace CLI {
class App;
}

namespace shoal::cli {

void add_bench_handover(CLI::App& bench, int& exit_code);

// "1", "tp2", "tp2pp2": degrees named in this order, each at most once. Nothing where it is none.
std::optional<Degrees> layout_from_name(const std::string& name);

}  // namespace shoal::cli
