// `shoal up FILE`: starts the cluster that a file describes, keeps it running, says how it is; `shoal down
// FILE` ends it.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_up(CLI::App& app, int& exit_code);
void add_down(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
