// How many files, connections among them, this process may have open.
//
// Thread-safety: any thread; it counts for all.

#pragma once

namespace shoal::cli {

// As many as the system allows at most: each stream through a gateway takes two.
void raise_file_limit();

}  // namespace shoal::cli
