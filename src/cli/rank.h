// `shoal rank`: a rank that joins a worker. The head of a worker starts those of its own host itself.
//
// Exit codes: 0 stopped by the head; 1 refused, model or run time; 2 usage; 3 lost its head.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_rank(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
