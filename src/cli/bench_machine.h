// `shoal bench machine`: what this machine gives at most, by core and together. Scripts that compare two
// programs call it before and after a pair of runs.
//
// Exit codes: 0; 1 where there is no memory to measure with; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand to `bench`; its callback sets exit_code, which must outlive the parsing.
void add_bench_machine(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
