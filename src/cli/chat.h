// `shoal chat [URL]`: a conversation with any server of the OpenAI API, on a terminal or through a pipe.
//
// Exit codes: 0; 1 where the server cannot be asked or an answer failed (through a pipe); 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_chat(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
