// `shoal bench kernel`: each kernel alone, on shapes of real models, as TFLOP/s or GB/s and as a share of
// what the machine gives, with a roofline plot.
//
// Exit codes: 0; 1 where memory is short or the plot cannot be written; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand to `bench`; its callback sets exit_code, which must outlive the parsing.
void add_bench_kernel(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
