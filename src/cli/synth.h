// `shoal synth SHAPE OUT`: a model with random weights in the shape of a real one, as a GGUF file or a
// Hugging Face folder.
//
// Exit codes: 0; 1 where the file cannot be written, with one sentence on standard error; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand; its callback sets exit_code, which must outlive the parsing.
void add_synth(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
