// How a Checkpoint is put together from the files of each format. Checkpoint::open chooses.
//
// Thread-safety: functions without state.

#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "core/expected.h"
#include "formats/checkpoint.h"
#include "formats/hf_model_config.h"
#include "formats/model_folder.h"

namespace shoal::formats {

// One GGUF file, or all files of a split model, given its first: they must say the same count, number
// themselves without a gap, and hold together as many tensors as the first one promises.
class GgufCheckpointReader {
 public:
  static Expected<Checkpoint> read(const std::filesystem::path& path);

 private:
  static Status read_rest(const std::filesystem::path& first, std::uint64_t count, Checkpoint& out);
};

// A folder with config.json and model.safetensors, or shards that model.safetensors.index.json lists.
class HfCheckpointReader {
 public:
  static Expected<Checkpoint> read(const std::filesystem::path& path);

 private:
  static Status open_files(const ModelFolder& folder, Checkpoint& out);
  static Status open_shards(const ModelFolder& folder, Checkpoint& out);
  static Status name_tensors(const HfFamily& family, Checkpoint& out);
  static void add_aliases(const HfFamily& family, const Checkpoint& out,
                          std::map<std::string, ModelTensor>& named);
};

}  // namespace shoal::formats
