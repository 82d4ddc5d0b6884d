// The file with the cluster token, as commands take it: read, with a warning where others can read it too;
// made where there is none.
//
// Thread-safety: pure, but for the file and the log.
// Errors: one sentence that names the file, never what is in it.

#pragma once

#include <filesystem>

#include "core/expected.h"
#include "wire/cluster_token.h"

namespace shoal::cli {

// As ClusterToken::load. Warns (token.exposed) where the file's group or all others may read it.
Expected<wire::ClusterToken> load_token(const std::filesystem::path& file);

// Where there is no such file, one with a new token, which only its owner reads. It has its name only once it
// is whole.
Status ensure_token(const std::filesystem::path& file);

}  // namespace shoal::cli
