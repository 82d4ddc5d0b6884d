// `shoal bench serve --url U --rate R`: what users of a running server see, under load that does not wait for
// it.
//
// Exit codes: 0; 1 where no request was answered or the report cannot be written; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand to `bench`; its callback sets exit_code, which must outlive the parsing.
void add_bench_serve(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
