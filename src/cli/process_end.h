// The end of a child process: waited for with a deadline, and said in words.
//
// Thread-safety: pure but for what the system knows of the process.
// Ownership: none. The process stays to be waited for (waitpid) by whoever started it, so that its number
// names
//   no other.

#pragma once

#include <sys/types.h>

#include <string>

#include "core/clock.h"

namespace shoal::cli {

// Whether the child has ended by then.
bool await_end(pid_t child, TimePoint deadline);

// Of waitpid's status: "was killed by signal 9", "ended with exit code 1".
std::string how_it_ended(int status);

}  // namespace shoal::cli
