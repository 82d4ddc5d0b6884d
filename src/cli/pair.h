// `shoal pair --prefill URL --decode URL`: the smallest front for a prefill and a decode worker.
//
// Every request goes to both at once, with a room drawn for each answer; the client gets what the decode
// worker says. No queue, no second try, no choice of workers: that is a gateway's.
//
// Exit codes: 0 stopped by a signal; 1 where it cannot listen; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_pair(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
