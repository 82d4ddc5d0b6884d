#include "formats/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "formats/checkpoint_readers.h"

namespace shoal::formats {

Expected<Checkpoint> Checkpoint::open(const std::filesystem::path& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) return HfCheckpointReader::read(model);
  return GgufCheckpointReader::read(model);
}

std::uint64_t Checkpoint::file_bytes() const {
  std::uint64_t sum = 0;
  for (const File& file : files_) {
    sum += std::visit([](const auto& f) { return static_cast<std::uint64_t>(f.file_bytes()); }, file);
  }
  return sum;
}

std::vector<std::span<const std::byte>> Checkpoint::descriptions() const {
  std::vector<std::span<const std::byte>> out;
  if (!config_.empty()) out.push_back(std::as_bytes(std::span(config_.data(), config_.size())));
  for (const File& file : files_) {
    out.push_back(std::visit([](const auto& f) { return f.header_bytes(); }, file));
  }
  return out;
}

std::vector<const MappedFile*> Checkpoint::mappings() const {
  std::vector<const MappedFile*> out;
  for (const File& file : files_) {
    const MappedFile* mapping = std::visit([](const auto& f) { return f.mapping(); }, file);
    if (mapping != nullptr) out.push_back(mapping);
  }
  return out;
}

void Checkpoint::will_need(const ModelTensor& tensor) {
  static const auto kPage = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
  const std::uintptr_t begin = address / kPage * kPage;
  // A hint: where it fails, pages are read when they are touched.
  ::madvise(reinterpret_cast<void*>(begin), address + tensor.bytes.size() - begin, MADV_WILLNEED);
}

void Checkpoint::drop(const ModelTensor& tensor) const {
  const File& file = files_[static_cast<std::size_t>(tensor.file)];
  if (const auto* gguf = std::get_if<GgufFile>(&file)) return gguf->drop(tensor);
  std::get<SafetensorsFile>(file).drop(tensor.bytes);
}

}  // namespace shoal::formats
