// `shoal serve`: one worker on this machine behind the OpenAI API.
//
// Exit codes: 0 drained after SIGTERM or SIGINT; 1 model, file or address; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_serve(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
