// `shoal bench traffic`: what a layout moves between its ranks, by purpose: as the formulas say
// (layout/traffic.h) and as the ranks' ledgers have counted it.
//
// Thread-safety: one thread, main's.
// Ownership: `bench` and exit_code are borrowed, until parsing is over.
// Exit codes: 0; 1 where the two differ or the model cannot be loaded; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_bench_traffic(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
