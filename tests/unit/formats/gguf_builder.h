// GGUF bytes written field by field, so that a test can lie in any of them; and small helpers of these tests.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_file.h"
#include "formats/gguf_value.h"
#include "material.h"

namespace shoal::formats::test {

class GgufBuilder {
 public:
  template <typename T>
  GgufBuilder& put(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  GgufBuilder& raw(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  GgufBuilder& text(std::string_view text) { return put(std::uint64_t{text.size()}).raw(text); }
  GgufBuilder& type(GgufType type) { return put(static_cast<std::uint32_t>(type)); }

  GgufBuilder& preamble(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    return raw("GGUF").put(version).put(tensors).put(entries);
  }
  GgufBuilder& uint32(std::string_view key, std::uint32_t value) {
    return text(key).type(GgufType::kUint32).put(value);
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t dtype,
                      std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t d : dims) put(d);
    return put(dtype).put(offset);
  }
  GgufBuilder& align(std::size_t to = 32) {
    bytes_.resize((bytes_.size() + to - 1) / to * to);
    return *this;
  }
  GgufBuilder& zeros(std::size_t n) {
    bytes_.resize(bytes_.size() + n);
    return *this;
  }

  std::vector<std::byte>& bytes() { return bytes_; }
  Expected<GgufFile> parse() const { return GgufFile::parse(bytes_, "test.gguf"); }
  // The reader's complaint, "" where there is none.
  std::string error() const {
    const auto file = parse();
    return file ? std::string() : file.error().message();
  }

 private:
  std::vector<std::byte> bytes_;
};

// `EXPECT_TRUE(says(error, {"file", "tensor"}))`: every part stands in the text.
inline ::testing::AssertionResult says(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) == std::string_view::npos) {
      return ::testing::AssertionFailure() << "\"" << text << "\" lacks \"" << part << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

// A folder of this process that goes with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "shoal_formats_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// $SHOAL_SHARED, else the folder `shared` beside the source tree.
inline std::filesystem::path shared_folder() { return testing_material::shared(); }

}  // namespace shoal::formats::test
