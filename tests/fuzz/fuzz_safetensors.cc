// Feeds any bytes to the safetensors reader.
//
// Beyond crashes it checks the reader's promises: tensors inside the file, one behind the other without
// holes, of as many bytes as shape and type say, and errors of one line that name the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <string>

#include "formats/hf_family.h"
#include "formats/safetensors_file.h"

namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = shoal::formats::SafetensorsFile::parse(bytes, "fuzz.safetensors");
  if (!file) {
    require(file.error().message().starts_with("fuzz.safetensors: "));
    require(file.error().message().find('\n') == std::string::npos);
    return 0;
  }
  const std::byte* at = bytes.data() + file->header_bytes().size();
  std::set<std::string> names;
  for (const auto& tensor : file->tensors()) {
    require(tensor.bytes.data() == at);
    at += tensor.bytes.size();
    require(names.insert(tensor.name).second);
    if (tensor.type) {
      std::int64_t elements = 1;
      for (const std::int64_t d : tensor.shape) elements *= d;
      require(static_cast<std::int64_t>(tensor.bytes.size()) == elements * shoal::block_bytes(*tensor.type));
    }
    // A name that is translated comes back as it was.
    for (const char* type : {"llama", "gemma3_text"}) {
      const auto* family = shoal::formats::find_hf_family(type);
      if (const auto name = shoal::formats::canonical_tensor_name(*family, tensor.name))
        require(shoal::formats::hf_tensor_name(*family, *name) == tensor.name);
    }
  }
  require(at == bytes.data() + bytes.size());
  return 0;
}
