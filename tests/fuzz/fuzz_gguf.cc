// Feeds any bytes to the GGUF reader, and what it accepts to everything that reads a GGUF file.
//
// Beyond crashes it checks the reader's promises: tensors inside the file, apart from each other, and errors
// of one line that name the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/fingerprint.h"
#include "formats/gguf_file.h"
#include "formats/model_metadata.h"
#include "formats/model_summary.h"

namespace {

using shoal::formats::GgufFile;

void require(bool promise) {
  if (!promise) std::abort();
}

void check_error(const shoal::Status& status) {
  require(status.message().starts_with("fuzz.gguf: "));
  require(status.message().find('\n') == std::string::npos);
}

void read_every_value(const GgufFile& file) {
  for (const auto& entry : file.metadata()) {
    require(file.find(entry.key) == &entry.value);
    (void)entry.value.as_uint();
    (void)entry.value.as_int();
    (void)entry.value.as_float();
    (void)entry.value.as_bool();
    (void)entry.value.as_string();
    (void)entry.value.as_int32s();
    (void)entry.value.as_floats();
    (void)entry.value.as_bools();
    if (const auto strings = entry.value.as_strings()) require(strings->size() == entry.value.count());
  }
}

void check_tensors(const GgufFile& file, std::span<const std::byte> bytes) {
  for (const auto& tensor : file.tensors()) {
    require(tensor.bytes.data() >= bytes.data() + file.header_bytes().size());
    require(tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
    require(static_cast<std::uint64_t>(tensor.bytes.data() - bytes.data()) % file.alignment() == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = GgufFile::parse(bytes, "fuzz.gguf");
  if (!file) {
    check_error(file.error());
    return 0;
  }
  read_every_value(*file);
  check_tensors(*file, bytes);
  (void)shoal::formats::model_fingerprint(*file, "file", "v1");
  const auto model = shoal::formats::read_model_metadata(*file);
  if (!model) {
    check_error(model.error());
    return 0;
  }
  const shoal::Status sound = shoal::formats::check_model_tensors(*file, *model);
  if (sound.ok()) {
    (void)shoal::formats::summarise(*file, *model);
  } else {
    check_error(sound);
  }
  return 0;
}
