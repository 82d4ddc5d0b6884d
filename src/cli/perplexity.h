// `shoal perplexity MODEL FILE`: how well a model predicts a text, computed as llama.cpp's tool of that name
// does.
//
// The text is cut into windows of 512 tokens, each starts on its own; the tokens of the second half are
// scored. Where the vocabulary puts a begin token before texts, it replaces the first token of every window.
// Exit codes: 0; 1 where the model or the text is wrong; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand; its callback sets exit_code, which must outlive the parsing.
void add_perplexity(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
