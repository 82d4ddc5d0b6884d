// `shoal tokenize MODEL --jsonl`: text to ids and back, one JSON object a line.
//
// Input lines are {"text":…} (encoded with the special tokens that the model adds; "add_special" and
// "parse_special" set to false turn that and the recognition of written special tokens off) or {"ids":[…]};
// output lines {"ids":[…],"decoded":…,"decoded_skip_special":…}, or {"error":…} for a line that is neither.
// Exit codes: 0; 1 where the model cannot be read, with one sentence on standard error; 2 usage.

#pragma once

#include <iosfwd>

namespace CLI {
class App;
}

namespace shoal::tokenizer {
class Tokenizer;
}

namespace shoal::cli {

// Adds the subcommand; its callback sets exit_code, which must outlive the parsing.
void add_tokenize(CLI::App& app, int& exit_code);

// One line of output for each line of input, in order, flushed at once: a program may talk through a pipe.
void tokenize_lines(const tokenizer::Tokenizer& tokenizer, std::istream& in, std::ostream& out);

}  // namespace shoal::cli
