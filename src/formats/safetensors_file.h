// A safetensors file, mapped and checked: its tensors and the strings of its metadata.
//
// Everything is checked at opening, once: names are unique, shapes and types agree with lengths, and the
// tensors fill the rest of the file exactly, without holes or overlaps, as the format asks.
//
// Thread-safety: const after opening; any thread may read.
// Ownership: owns the mapping; tensor bytes are views into it and die with it. Moving the file keeps them.
// Errors: kCorrupt, kNotFound or kIo; one sentence with the file, the tensor and the reason. Nothing is
//   allocated from a length that was not first compared with the bytes that are left.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/mapped_file.h"
#include "tensor/dtype.h"

namespace shoal::formats {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;                // as the file writes it: "BF16"
  std::optional<DType> type;        // nothing for types that no weight here can have: "F8_E4M3", "I64"
  std::vector<std::int64_t> shape;  // row-major, the length of a row last; empty for one number
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  static Expected<SafetensorsFile> open(const std::filesystem::path& path);
  // Reads a file that is in memory already; the bytes must outlive the result. `name` is for messages.
  static Expected<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  // In the order of their bytes.
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  // What the file says about itself under "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The length and the header, as they stand in the file.
  std::span<const std::byte> header_bytes() const { return bytes_.first(header_size_); }
  std::size_t file_bytes() const { return bytes_.size(); }
  // Null for a file that was parsed from memory.
  const MappedFile* mapping() const { return mapping_ ? &*mapping_ : nullptr; }

  // MappedFile::drop for bytes of this file; nothing for one parsed from memory.
  void drop(std::span<const std::byte> bytes) const;

 private:
  class Parser;
  SafetensorsFile() = default;

  std::optional<MappedFile> mapping_;
  std::span<const std::byte> bytes_;
  std::string name_;
  std::size_t header_size_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace shoal::formats
