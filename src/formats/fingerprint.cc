#include "formats/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <span>

namespace shoal::formats {
namespace {

constexpr std::size_t kEnd = 4096;

class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(state_.get()); }

  // Every piece goes in with its length, so that no two lists of pieces are the same bytes.
  void add(std::span<const std::byte> bytes) {
    const std::uint64_t length = bytes.size();
    XXH3_128bits_update(state_.get(), &length, sizeof(length));
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }

  Fingerprint digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.high64, hash.low64};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

Fingerprint fingerprint(std::span<const std::span<const std::byte>> descriptions,
                        std::span<const ModelTensor> tensors, std::string_view weight_type,
                        std::string_view kv_layout) {
  Hasher hasher;
  for (const auto& description : descriptions) hasher.add(description);
  for (const ModelTensor& tensor : tensors) {
    const std::size_t piece = std::min(kEnd, tensor.bytes.size());
    hasher.add(tensor.bytes.first(piece));
    hasher.add(tensor.bytes.last(piece));
  }
  hasher.add(weight_type);
  hasher.add(kv_layout);
  return hasher.digest();
}

}  // namespace

std::string Fingerprint::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Fingerprint model_fingerprint(const Checkpoint& model, std::string_view weight_type,
                              std::string_view kv_layout) {
  return fingerprint(model.descriptions(), model.tensors(), weight_type, kv_layout);
}

Fingerprint model_fingerprint(const GgufFile& file, std::string_view weight_type,
                              std::string_view kv_layout) {
  const std::span<const std::byte> description = file.header_bytes();
  return fingerprint(std::span(&description, 1), file.tensors(), weight_type, kv_layout);
}

}  // namespace shoal::formats
