// How much memory is left for this process.
//
// Thread-safety: may be called from any thread.

#pragma once

#include <cstddef>

namespace shoal {

// Bytes this process may still take: the least of the system's MemAvailable and what the memory limits of its
// control group and that group's parents leave, page cache that can be dropped counted as free.
std::size_t available_memory();

}  // namespace shoal
