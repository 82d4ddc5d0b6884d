#include "formats/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "formats/gguf_file.h"

namespace shoal::formats {
namespace {

namespace fs = std::filesystem;

bool is_plain_name(std::string_view file) {
  return !file.empty() && file != "." && file != ".." && file.find('/') == std::string_view::npos &&
         file.find('\0') == std::string_view::npos;
}

}  // namespace

Expected<ModelFolder> ModelFolder::open(const fs::path& folder) {
  std::error_code error;
  ModelFolder out;
  out.path_ = folder;
  out.real_ = fs::canonical(folder, error);
  if (error)
    return Status(ErrorCode::kNotFound, fmt::format("{}: cannot open: {}", folder.string(), error.message()));
  if (!fs::is_directory(out.real_, error))
    return Status(ErrorCode::kIo, fmt::format("{}: not a folder", folder.string()));
  if (out.real_.parent_path().filename() == "snapshots")
    out.blobs_ = out.real_.parent_path().parent_path() / "blobs";
  return out;
}

bool ModelFolder::has(std::string_view file) const {
  std::error_code error;
  return fs::exists(path_ / file, error);
}

Expected<fs::path> ModelFolder::find(std::string_view file) const {
  const auto fail = [&](ErrorCode code, std::string_view why) {
    return Status(code, fmt::format("{}: {}", (path_ / printable(file)).string(), why));
  };
  if (!is_plain_name(file)) {
    return Status(ErrorCode::kCorrupt, fmt::format("{}: '{}' is not the name of a file in this folder",
                                                   path_.string(), printable(file)));
  }
  std::error_code error;
  const fs::path real = fs::canonical(path_ / file, error);
  if (error) return fail(ErrorCode::kNotFound, fmt::format("cannot open: {}", error.message()));
  if (real.parent_path() != real_ && (blobs_.empty() || real.parent_path() != blobs_))
    return fail(ErrorCode::kCorrupt, "is a link that leads out of the model's folder");
  if (!fs::is_regular_file(real, error)) return fail(ErrorCode::kIo, "not a regular file");
  return path_ / file;
}

Expected<std::string> ModelFolder::read(std::string_view file, std::size_t largest) const {
  SHOAL_ASSIGN(path, find(file));
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return Status(ErrorCode::kIo, fmt::format("{}: {}", path.string(), error.message()));
  if (size > largest) {
    return Status(ErrorCode::kCorrupt, fmt::format("{}: has {} bytes, the limit for such a file is {}",
                                                   path.string(), size, largest));
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in) return Status(ErrorCode::kIo, fmt::format("{}: cannot be read", path.string()));
  return text;
}

}  // namespace shoal::formats
