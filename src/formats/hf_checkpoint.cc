// A Checkpoint from a Hugging Face folder.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "formats/checkpoint_readers.h"

namespace shoal::formats {
namespace {

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
// Real ones have a few KiB, and about 100 bytes for each tensor.
constexpr std::size_t kLargestConfig = std::size_t{16} << 20;
constexpr std::size_t kLargestIndex = std::size_t{64} << 20;

Status corrupt(const std::string& file, const std::string& text) {
  return {ErrorCode::kCorrupt, fmt::format("{}: {}", file, text)};
}

// The name without what a model of several parts puts before its text model's names.
std::string text_model_name(std::string_view name) {
  constexpr std::string_view kInner = "model.language_model.";
  constexpr std::string_view kOuter = "language_model.";
  if (name.starts_with(kInner)) return fmt::format("model.{}", name.substr(kInner.size()));
  if (name.starts_with(kOuter)) return std::string(name.substr(kOuter.size()));
  return std::string(name);
}

// What belongs to parts that are not the text model, and tables that are computed here.
bool is_left_out(const HfFamily& family, std::string_view name) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  if (!family.nested) return false;
  if (name.starts_with("model.")) name.remove_prefix(6);
  return name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.");
}

// Shape and type in our terms; for those that no weight can have, an error.
Status describe(const SafetensorsTensor& from, const std::string& file, ModelTensor& to) {
  if (!from.type) {
    return {ErrorCode::kUnsupported,
            fmt::format("{}: tensor '{}' is {}, a type that cannot be served; F32, F16 and BF16 can", file,
                        printable(from.name), from.dtype)};
  }
  if (from.shape.empty() || from.shape.size() > to.dims.size() || from.bytes.empty()) {
    return corrupt(file, fmt::format("tensor '{}' has {} dimensions and {} bytes, which no weight has",
                                     printable(from.name), from.shape.size(), from.bytes.size()));
  }
  to.type = *from.type;
  to.n_dims = static_cast<int>(from.shape.size());
  std::reverse_copy(from.shape.begin(), from.shape.end(), to.dims.begin());
  to.bytes = from.bytes;
  return {};
}

// tensor -> file.
Expected<std::map<std::string, std::string>> read_index(const ModelFolder& folder) {
  const std::string name = (folder.path() / kIndex).string();
  SHOAL_ASSIGN(text, folder.read(kIndex, kLargestIndex));
  SHOAL_ASSIGN(json, JsonFile::parse(text, name));
  simdjson::dom::object map;
  if (json.root()["weight_map"].get(map) != simdjson::SUCCESS)
    return corrupt(name, "weight_map is missing, or no object");
  std::map<std::string, std::string> out;
  for (const auto [tensor, value] : map) {
    std::string_view file;
    if (value.get(file) != simdjson::SUCCESS)
      return corrupt(name, fmt::format("weight_map gives no file for '{}'", printable(tensor)));
    if (!out.emplace(tensor, file).second)
      return corrupt(name, fmt::format("weight_map has '{}' twice", printable(tensor)));
  }
  if (out.empty()) return corrupt(name, "weight_map is empty");
  return out;
}

Status no_weights(const ModelFolder& folder) {
  std::string hint;
  if (folder.has("pytorch_model.bin") || folder.has("pytorch_model.bin.index.json"))
    hint = "; pytorch_model.bin is not read, since loading it runs code: save it as safetensors";
  return {ErrorCode::kNotFound,
          fmt::format("{}: has neither {} nor {}{}", folder.path().string(), kSingle, kIndex, hint)};
}

// A folder without config.json, which may hold GGUF files.
Status no_config(const ModelFolder& folder) {
  std::string hint;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path(), error)) {
    if (entry.path().extension() == ".gguf")
      hint = fmt::format("; for a GGUF model give the file, such as {}",
                         printable(entry.path().filename().string()));
  }
  return {ErrorCode::kNotFound, fmt::format("{}: has no {}{}", folder.path().string(), kConfig, hint)};
}

}  // namespace

Expected<Checkpoint> HfCheckpointReader::read(const std::filesystem::path& path) {
  SHOAL_ASSIGN(folder, ModelFolder::open(path));
  if (!folder.has(kConfig)) return no_config(folder);
  SHOAL_ASSIGN(text, folder.read(kConfig, kLargestConfig));
  SHOAL_ASSIGN(json, JsonFile::parse(text, (folder.path() / kConfig).string()));
  SHOAL_ASSIGN(config, read_hf_model_config(json));

  Checkpoint out(path);
  out.format_ = "Hugging Face";
  out.config_ = text;
  out.metadata_ = std::move(config.model);
  ModelMetadata& model = out.metadata_;
  const HfFamily& family = *config.family;
  std::error_code ignored;
  model.name = std::filesystem::canonical(path, ignored).filename().string();
  SHOAL_TRY(open_files(folder, out));
  out.table_.spell_with([&family](std::string_view name) { return printable(hf_tensor_name(family, name)); });
  SHOAL_TRY(name_tensors(family, out));

  const Architecture& architecture = *find_architecture(family.architecture);
  if (architecture.attention_bias == Presence::kIfThere)
    model.attention_bias = out.tensor("blk.0.attn_q.bias") != nullptr;
  model.attention_output_bias = out.tensor("blk.0.attn_output.bias") != nullptr;
  if (architecture.qk_norm == Presence::kIfThere)
    model.qk_norm = out.tensor("blk.0.attn_q_norm.weight") != nullptr;
  SHOAL_TRY(check_model_tensors(out.table_, model));
  return out;
}

Status HfCheckpointReader::open_files(const ModelFolder& folder, Checkpoint& out) {
  if (!folder.has(kSingle) && folder.has(kIndex)) return open_shards(folder, out);
  if (!folder.has(kSingle)) return no_weights(folder);
  SHOAL_ASSIGN(path, folder.find(kSingle));
  SHOAL_ASSIGN(file, SafetensorsFile::open(path));
  out.table_.add_file(file.name());
  out.files_.emplace_back(std::move(file));
  return {};
}

Status HfCheckpointReader::open_shards(const ModelFolder& folder, Checkpoint& out) {
  SHOAL_ASSIGN(index, read_index(folder));
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  std::unordered_map<std::string_view, std::string_view> held;  // tensor -> file
  for (const std::string& name : names) {
    SHOAL_ASSIGN(path, folder.find(name));
    SHOAL_ASSIGN(file, SafetensorsFile::open(path));
    out.table_.add_file(file.name());
    out.files_.emplace_back(std::move(file));
    for (const SafetensorsTensor& tensor : std::get<SafetensorsFile>(out.files_.back()).tensors()) {
      const auto [at, added] = held.emplace(tensor.name, name);
      if (!added) {
        return corrupt(path.string(), fmt::format("tensor '{}' is also in {}", printable(tensor.name),
                                                  printable(at->second)));
      }
    }
  }
  for (const auto& [tensor, file] : index) {
    const auto found = held.find(tensor);
    if (found == held.end() || found->second != file) {
      return corrupt((folder.path() / kIndex).string(),
                     fmt::format("weight_map puts '{}' into {}, which does not have it", printable(tensor),
                                 printable(file)));
    }
  }
  return {};
}

Status HfCheckpointReader::name_tensors(const HfFamily& family, Checkpoint& out) {
  std::map<std::string, ModelTensor> named;
  for (std::size_t i = 0; i < out.files_.size(); ++i) {
    const auto& file = std::get<SafetensorsFile>(out.files_[i]);
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (is_left_out(family, tensor.name)) continue;
      auto name = canonical_tensor_name(family, text_model_name(tensor.name));
      if (!name) {
        return {ErrorCode::kUnsupported, fmt::format("{}: tensor '{}' has no place in a {} model",
                                                     file.name(), printable(tensor.name), family.model_type)};
      }
      ModelTensor described;
      described.file = static_cast<std::int32_t>(i);
      SHOAL_TRY(describe(tensor, file.name(), described));
      if (!named.emplace(std::move(*name), described).second)
        return corrupt(file.name(), fmt::format("tensor '{}' stands twice", printable(tensor.name)));
    }
  }
  add_aliases(family, out, named);
  for (auto& [name, tensor] : named) SHOAL_TRY(out.table_.add(tensor, name));
  return {};
}

void HfCheckpointReader::add_aliases(const HfFamily& family, const Checkpoint& out,
                                     std::map<std::string, ModelTensor>& named) {
  // A file stores tensors that share their memory once, and may say in its metadata under which other names
  // they are known.
  for (const auto& file : out.files_) {
    for (const auto& [alias, stored] : std::get<SafetensorsFile>(file).metadata()) {
      const auto ours = canonical_tensor_name(family, text_model_name(alias));
      const auto theirs = canonical_tensor_name(family, text_model_name(stored));
      if (!ours || !theirs) continue;
      if (const auto found = named.find(*theirs); found != named.end()) named.emplace(*ours, found->second);
    }
  }
  if (!out.metadata_.tied_embeddings) return;
  // One matrix serves both ends, whichever name it is stored under; a second copy of it is not needed.
  if (const auto head = named.find("output.weight"); head != named.end()) {
    named.emplace("token_embd.weight", head->second);
    named.erase("output.weight");
  }
}

}  // namespace shoal::formats
