// A Checkpoint from GGUF files.

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "formats/checkpoint_readers.h"

namespace shoal::formats {
namespace {

// More files than any model is split into; the format counts in 16 bits.
constexpr std::uint64_t kMostParts = 9999;

std::string part_name(std::string_view stem, std::uint64_t number, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

// "model" of "model-00001-of-00003.gguf", where the name is that of the first of `count` files.
std::optional<std::string> stem_of_first(const std::string& name, std::uint64_t count) {
  const std::string ending = part_name("", 1, count);
  if (name.size() <= ending.size() || !name.ends_with(ending)) return std::nullopt;
  return name.substr(0, name.size() - ending.size());
}

Status add_tensors(const GgufFile& file, TensorTable& table) {
  const std::int32_t index = table.add_file(file.name());
  for (ModelTensor tensor : file.tensors()) {
    tensor.file = index;
    SHOAL_TRY(table.add(tensor));
  }
  return {};
}

}  // namespace

Expected<Checkpoint> GgufCheckpointReader::read(const std::filesystem::path& path) {
  SHOAL_ASSIGN(file, GgufFile::open(path));
  SHOAL_ASSIGN(count, file.get_uint("split.count", 1));
  Checkpoint out(path);
  out.format_ = fmt::format("GGUF {}", file.version());
  out.files_.emplace_back(std::move(file));
  SHOAL_TRY(add_tensors(std::get<GgufFile>(out.files_.front()), out.table_));
  if (count > 1) SHOAL_TRY(read_rest(path, count, out));
  const GgufFile& first = std::get<GgufFile>(out.files_.front());
  SHOAL_ASSIGN(metadata, read_model_metadata(first, out.table_));
  out.metadata_ = std::move(metadata);
  SHOAL_TRY(check_model_tensors(out.table_, out.metadata_));
  return out;
}

Status GgufCheckpointReader::read_rest(const std::filesystem::path& first_path, std::uint64_t count,
                                       Checkpoint& out) {
  // Not a reference: the vector grows below.
  const std::string first_name = first_path.string();
  const auto corrupt = [](const std::string& file, const std::string& text) {
    return Status(ErrorCode::kCorrupt, fmt::format("{}: {}", file, text));
  };
  if (count > kMostParts)
    return corrupt(first_name,
                   fmt::format("claims to be one of {} files, the limit is {}", count, kMostParts));
  SHOAL_ASSIGN(number, std::get<GgufFile>(out.files_.front()).get_uint("split.no"));
  SHOAL_ASSIGN(promised, std::get<GgufFile>(out.files_.front()).get_uint("split.tensors.count"));
  if (number != 0) {
    return corrupt(first_name, fmt::format("file {} of a model split into {}; give the first one, "
                                           "...-00001-of-{:05}.gguf",
                                           number + 1, count, count));
  }
  const auto stem = stem_of_first(first_path.filename().string(), count);
  if (!stem) {
    return corrupt(first_name,
                   fmt::format("the first of {} files must be called ...-00001-of-{:05}.gguf", count, count));
  }
  for (std::uint64_t i = 1; i < count; ++i) {
    SHOAL_ASSIGN(part, GgufFile::open(first_path.parent_path() / part_name(*stem, i + 1, count)));
    SHOAL_ASSIGN(part_number, part.get_uint("split.no"));
    SHOAL_ASSIGN(part_count, part.get_uint("split.count"));
    if (part_number != i || part_count != count) {
      return corrupt(part.name(), fmt::format("says it is file {} of {}, where {} of {} is expected",
                                              part_number + 1, part_count, i + 1, count));
    }
    out.files_.emplace_back(std::move(part));
    SHOAL_TRY(add_tensors(std::get<GgufFile>(out.files_.back()), out.table_));
  }
  if (out.table_.tensors().size() != promised) {
    return corrupt(first_name, fmt::format("promises {} tensors in {} files, which hold {}", promised, count,
                                           out.table_.tensors().size()));
  }
  return {};
}

}  // namespace shoal::formats
