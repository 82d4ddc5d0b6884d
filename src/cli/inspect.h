// `shoal inspect MODEL`: what a model file is, its shapes, where its parameters lie, and what it needs in
// memory.
//
// Exit codes: 0; 1 where the file is broken or cannot be served, with one sentence on standard error; 2
//   usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand; its callback sets exit_code, which must outlive the parsing.
void add_inspect(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
