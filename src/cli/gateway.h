// `shoal gateway`: one address in front of many workers.
//
// Thread-safety: none needed; adds its subcommand to the app.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_gateway(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
