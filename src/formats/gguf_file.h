// A GGUF model file (version 2 or 3), mapped and checked: its metadata and its tensors.
//
// Everything is checked at opening, once: a GgufFile that exists has counts, lengths, names and offsets that
// agree with each other and with the file's size. Whether they describe a model is model_metadata.h's matter.
//
// Thread-safety: const after opening; any thread may read.
// Ownership: owns the mapping; keys, names, values and tensor bytes are views into it and die with it. Moving
//   the file keeps them.
// Invariants:
//   1. Every tensor's bytes lie inside the file, aligned to alignment(), and no two overlap.
//   2. Keys are unique and so are tensor names.
//   3. A tensor's rows are whole blocks of its type, and its element count fits an int64.
// Errors: kCorrupt or kUnsupported, one sentence with the file, the key or tensor, and the reason. Nothing is
//   allocated from a length that was not first compared with the bytes that are left.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/expected.h"
#include "core/mapped_file.h"
#include "formats/gguf_value.h"
#include "formats/model_tensor.h"

namespace shoal::formats {

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

using GgufTensor = ModelTensor;

// What came from a file, made fit for an error message: no control characters, cut after 80 bytes.
std::string printable(std::string_view text);

class GgufFile {
 public:
  static Expected<GgufFile> open(const std::filesystem::path& path);
  // Reads a file that is in memory already; the bytes must outlive the result. `name` is for messages.
  static Expected<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  // The path, or what parse() was told.
  const std::string& name() const { return name_; }
  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  std::span<const GgufEntry> metadata() const { return entries_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  // The header, the metadata and the tensor table, as they stand in the file.
  std::span<const std::byte> header_bytes() const { return bytes_.first(header_size_); }
  std::size_t file_bytes() const { return bytes_.size(); }
  // Null for a file that was parsed from memory.
  const MappedFile* mapping() const { return mapping_ ? &*mapping_ : nullptr; }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // Null where absent.
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* tensor(std::string_view name) const;

  // The value of a key. Fails with kNotFound where it is absent and kCorrupt where it is of another type or
  // out of range. The two-argument forms give the fallback where the key is absent, and still fail on a wrong
  // type.
  Expected<std::uint64_t> get_uint(std::string_view key) const;
  Expected<std::uint64_t> get_uint(std::string_view key, std::uint64_t fallback) const;
  Expected<std::int64_t> get_int(std::string_view key) const;
  Expected<double> get_float(std::string_view key) const;
  Expected<double> get_float(std::string_view key, double fallback) const;
  Expected<bool> get_bool(std::string_view key) const;
  Expected<bool> get_bool(std::string_view key, bool fallback) const;
  Expected<std::string_view> get_string(std::string_view key) const;
  Expected<std::string_view> get_string(std::string_view key, std::string_view fallback) const;
  Expected<std::vector<std::string_view>> get_strings(std::string_view key) const;
  Expected<std::vector<std::int32_t>> get_int32s(std::string_view key) const;
  Expected<std::vector<float>> get_floats(std::string_view key) const;

  // Tells the kernel that a tensor's bytes will not be read again soon (MappedFile::drop). Nothing happens
  // for a file that was parsed from memory.
  void drop(const GgufTensor& tensor) const;

 private:
  class Parser;
  GgufFile() = default;

  std::optional<MappedFile> mapping_;
  std::span<const std::byte> bytes_;
  std::string name_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::size_t header_size_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> entry_index_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

}  // namespace shoal::formats
