// `shoal bench tokenizer MODEL --text FILE`: megabytes of text a second that one thread encodes and decodes.
//
// Exit codes: 0; 1 where the vocabulary or the text cannot be read; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand to `bench`; its callback sets exit_code, which must outlive the parsing.
void add_bench_tokenizer(CLI::App& bench, int& exit_code);

}  // namespace shoal::cli
