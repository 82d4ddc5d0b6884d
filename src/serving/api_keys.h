// The keys that may use a worker's API, from a file with one key a line.
//
// Thread-safety: immutable after loading.
// Ownership: owns digests of the keys, not the keys.
// Invariants: comparison takes the same time whatever the key, so that timing tells nothing.

#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::serving {

class ApiKeys {
 public:
  // No keys: everyone may use the API.
  ApiKeys() = default;
  // Empty lines and lines that begin with '#' are skipped. A file without any key is refused: it would either
  // lock everyone out or, worse, let everyone in.
  static Expected<ApiKeys> load(const std::filesystem::path& file);

  bool required() const { return !digests_.empty(); }
  // authorization: the header's value, "Bearer KEY".
  bool admits(std::string_view authorization) const;

 private:
  using Digest = std::array<std::uint8_t, 32>;
  static Digest digest_of(std::string_view key);
  std::vector<Digest> digests_;
};

}  // namespace shoal::serving
