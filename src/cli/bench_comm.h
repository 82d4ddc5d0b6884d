// `shoal bench comm`: what collectives between ranks of this machine take, by size and carrier.
//
// The ranks are processes forked from this one, one thread each.
//
// Exit codes: 0; 1 where ranks cannot meet; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand to `bench`; its callback sets exit_code, which must outlive the parsing.
void add_bench_comm(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
