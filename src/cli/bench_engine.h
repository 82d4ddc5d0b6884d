// `shoal bench engine MODEL`: prefill and decode speed of the forward pass, beside the machine's ceilings.
//
// Exit codes: 0; 1 where the model cannot be loaded or does not hold that many tokens; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand to `bench`; its callback sets exit_code, which must outlive the parsing.
void add_bench_engine(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
