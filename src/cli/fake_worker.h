// `shoal fake-worker`: workers without a model, by the thousand, for trying gateways and policies.
//
// Thread-safety: none needed; adds its subcommand to the app.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_fake_worker(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
