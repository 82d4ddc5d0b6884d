// `shoal bench context`: what context parallelism saves and costs: a long prompt and tokens at depth on one
// coordinate and on several, for each way to deal it.
//
// Thread-safety: one thread, main's.
// Ownership: `bench` and exit_code are borrowed, until parsing is over.
// Exit codes: 0; 1 where the model cannot be loaded or run; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_bench_context(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
