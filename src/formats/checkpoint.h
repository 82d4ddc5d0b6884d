// A model as it lies on disk, in whatever format: its metadata and its tensors by one set of names.
//
// Read from a GGUF file, from a GGUF model split into files (-00001-of-0000N.gguf), or from a Hugging Face
// folder (config.json with safetensors). Names are GGUF's in all cases; what differs between the formats is
// data in ModelMetadata (the order in which rope turns elements, what is added to stored norms).
//
// Thread-safety: const after opening; any thread may read.
// Ownership: owns the mapped files; names and tensor bytes are views into it and die with it. Moving it keeps
//   them.
// Invariants: every file is whole and sound in itself, every tensor the model needs is there with its shape
//   and a type that can be served, and there is none that would be ignored.
// Errors: one sentence with the file, the tensor or field, and the reason.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/expected.h"
#include "formats/gguf_file.h"
#include "formats/model_metadata.h"
#include "formats/safetensors_file.h"
#include "formats/tensor_table.h"

namespace shoal::formats {

class Checkpoint {
 public:
  // model: a GGUF file, the first file of a split GGUF model, or a folder.
  static Expected<Checkpoint> open(const std::filesystem::path& model);

  // The path, as it was given.
  const std::string& name() const { return table_.model(); }
  // "GGUF 3", "Hugging Face".
  const std::string& format() const { return format_; }
  const ModelMetadata& metadata() const { return metadata_; }
  const TensorTable& table() const { return table_; }
  std::span<const ModelTensor> tensors() const { return table_.tensors(); }
  // Null where absent.
  const ModelTensor* tensor(std::string_view name) const { return table_.find(name); }
  const std::string& file_of(const ModelTensor& tensor) const { return table_.file_of(tensor); }
  // Of all files together.
  std::uint64_t file_bytes() const;

  // The parts of the files that describe the model, in a fixed order: config.json, headers.
  std::vector<std::span<const std::byte>> descriptions() const;

  // The files, for who reads them without the mapping (ReadAhead).
  std::vector<const MappedFile*> mappings() const;

  // Tells the kernel that a tensor's bytes will not be read again soon (MappedFile::drop).
  void drop(const ModelTensor& tensor) const;
  // Asks the kernel to read a tensor's bytes, now and beside whatever this thread does next.
  static void will_need(const ModelTensor& tensor);

 private:
  using File = std::variant<GgufFile, SafetensorsFile>;
  friend class GgufCheckpointReader;
  friend class HfCheckpointReader;

  explicit Checkpoint(const std::filesystem::path& model) : table_(model.string()) {}

  std::string format_;
  std::string config_;       // config.json; empty for GGUF
  std::vector<File> files_;  // in the order of table_.files()
  TensorTable table_;
  ModelMetadata metadata_;
};

}  // namespace shoal::formats
