// `shoal bench traffic`: what a layout moves between its ranks, by purpose: as the formulas say
// (layout/traffic.h) and as the ranks' ledgers have counted it.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_bench_traffic(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
