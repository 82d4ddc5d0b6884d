// How much of the long matrices runs. By default a sample; SHOAL_EXACTNESS=all is everything, which takes
// hours on two cores; SHOAL_EXACTNESS_PART=2/6 beside it takes the second of six layouts, the eighth, and so
// on, so that several runs or machines share the matrix.
//
// Thread-safety: reads the environment; for one test at a time.

#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace shoal::testing_matrix {

inline bool everything() {
  const char* asked = std::getenv("SHOAL_EXACTNESS");
  return asked != nullptr && std::string_view(asked) == "all";
}

// Whether the layout of this index is to run. A part that cannot be read is a mistake of whoever runs this:
// it must not look like a matrix that passed.
inline bool in_part(std::size_t index) {
  const char* asked = std::getenv("SHOAL_EXACTNESS_PART");
  if (asked == nullptr) return true;
  std::size_t part = 0, parts = 0;
  int read = 0;
  if (std::sscanf(asked, "%zu/%zu%n", &part, &parts, &read) != 2 || asked[read] != 0 || part < 1 ||
      part > parts) {
    std::fprintf(stderr, "SHOAL_EXACTNESS_PART is '%s'; it has the form 2/6\n", asked);
    std::exit(2);
  }
  return index % parts == part - 1;
}

// A run that is ended early says what it has compared.
inline void tell_compared(const std::string& what) {
  if (!everything()) return;
  std::printf("[ compared ] %s\n", what.c_str());
  std::fflush(stdout);
}

}  // namespace shoal::testing_matrix
