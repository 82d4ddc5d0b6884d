// A TOML file whose keys are a command's flags: max-queue = 100, worker = ["http://a:8000"].
//
// Thread-safety: none needed.
// Errors: kInvalidArgument naming the file, the line and the key.

#pragma once

#include <filesystem>

#include "core/expected.h"

namespace CLI {
class App;
}

namespace shoal::cli {

// Gives each flag that the file names its value, as if it had been typed; flags that were typed win.
Status apply_config(CLI::App& command, const std::filesystem::path& file);

}  // namespace shoal::cli
