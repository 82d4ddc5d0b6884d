// `shoal score MODEL --jsonl`: what a model thinks of given tokens, for comparison with other
// implementations.
//
// In, one JSON object a line on standard input: {"ids": [...]}; nothing is added in front. Out, one a line:
// {"logprobs": [...], "top": [[id, logit], ...], "logsumexp": x, "greedy": [...]}. logprobs has one entry for
// every id but the first; top and logsumexp belong to the last position, greedy follows it. --logits FILE:
// [tokens, vocabulary] little-endian f32 of all lines, in input order.
// Exit codes: 0; 1 where the model or a line is wrong (that line's answer is {"error": ...}); 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

// Adds the subcommand; its callback sets exit_code, which must outlive the parsing.
void add_score(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
