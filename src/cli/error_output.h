// What a command says on standard error: words for people, progress.
//
// Thread-safety: as stdio's.
// Why not fmt::print: it throws where nothing can be written, and a closed or full standard error must not
//   end a command any other way than the mistake it had to tell of.

#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace shoal::cli {

template <typename... Arguments>
void print_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace shoal::cli
