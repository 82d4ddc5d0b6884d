// Where tests find what they read: files committed beside them, and the shared material outside the project.
//
// Thread-safety: pure functions of the environment.

#pragma once

#include <cstdlib>
#include <filesystem>

namespace shoal::testing_material {

// The source tree's root. By a compile definition: __FILE__ is relative under a compiler cache.
inline std::filesystem::path source_tree() { return SHOAL_SOURCE_DIR; }

// $SHOAL_SHARED, else the folder `shared` beside the source tree. It may be absent: tests then skip with a
// word.
inline std::filesystem::path shared() {
  if (const char* set = std::getenv("SHOAL_SHARED")) return set;
  return source_tree().parent_path() / "shared";
}

// Vocabularies of real families, one subfolder each (scripts/tokenizers fetches them): $SHOAL_TOKENIZERS,
// else shoal/tokenizers in the user's cache. It may be absent.
inline std::filesystem::path tokenizers() {
  if (const char* set = std::getenv("SHOAL_TOKENIZERS")) return set;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache == nullptr && home == nullptr) return {};
  return (cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache") /
         "shoal/tokenizers";
}

}  // namespace shoal::testing_material
