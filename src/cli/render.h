// `shoal render MODEL --jsonl`: conversations to the text a model sees, one JSON object a line.
//
// Input lines are {"messages":[…],"tools":[…],"kwargs":{…}}, the last two null or left out where there are
// none; output lines {"rendered":…}, or {"error":…} with the template's own sentence where it refuses. The
// clock that templates see is SOURCE_DATE_EPOCH (seconds, UTC) where set.
// Exit codes: 0; 1 where the model cannot be read, with one sentence on standard error; 2 usage.

#pragma once

#include <iosfwd>

namespace CLI {
class App;
}

namespace shoal::tokenizer {
class ChatTemplate;
}

namespace shoal::cli {

// Adds the subcommand; its callback sets exit_code, which must outlive the parsing.
void add_render(CLI::App& app, int& exit_code);

// One line of output for each line of input, in order, flushed at once: a program may talk through a pipe.
void render_lines(const tokenizer::ChatTemplate& chat_template, std::istream& in, std::ostream& out);

}  // namespace shoal::cli
