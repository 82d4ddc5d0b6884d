// A folder that holds a model: finds its files and lets none lie elsewhere.
//
// Thread-safety: const; any thread may use it.
// Ownership: owns its paths.
// Invariants: a path it gives is a regular file in the folder, symbolic links followed. The one exception is
//   the cache of Hugging Face's downloader: files of `.../snapshots/REVISION` are links into `.../blobs`.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/expected.h"

namespace shoal::formats {

class ModelFolder {
 public:
  // Fails with kNotFound or kIo where there is no such folder.
  static Expected<ModelFolder> open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  bool has(std::string_view file) const;
  // Fails with kNotFound where it is missing, kCorrupt where `file` is no plain name or leads out of the
  // folder, kIo where it is no regular file.
  Expected<std::filesystem::path> find(std::string_view file) const;
  // A whole file as text, at most `largest` bytes.
  Expected<std::string> read(std::string_view file, std::size_t largest) const;

 private:
  ModelFolder() = default;

  std::filesystem::path path_;
  std::filesystem::path real_;
  std::filesystem::path blobs_;  // empty outside a downloader's cache
};

}  // namespace shoal::formats
