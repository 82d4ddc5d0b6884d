// `shoal up FILE`: starts the cluster that a file describes, keeps it running, says how it is; `shoal down
// FILE` ends it.
//
// Thread-safety: one thread, main's, with the signals that end it blocked.
// Ownership: `up` owns the cluster's processes and the lock that says so; `down` holds nothing. app and
//   exit_code are borrowed, until parsing is over.
// Exit codes: 0 ended as asked, and all have drained; 1 a mistake in the file, a cluster that cannot come to
//   be, or something had to be killed, for `down` also: nothing is up, or it has not ended in time; 2 usage.

#pragma once

namespace CLI {
class App;
}

namespace shoal::cli {

void add_up(CLI::App& app, int& exit_code);
void add_down(CLI::App& app, int& exit_code);

}  // namespace shoal::cli
