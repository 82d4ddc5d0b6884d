// Which model this is, in 128 bits: what peers and caches compare before they share anything.
//
// Thread-safety: pure.
// Covers the files' descriptions (metadata and tensor tables), the first and last 4 KiB of each tensor, and
// what the caller adds: the type the weights are computed in and the KV layout's id. Costs 8 KiB read per
// tensor, not the file. It tells models apart; it does not prove that a file is unharmed.

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "formats/checkpoint.h"
#include "formats/gguf_file.h"

namespace shoal::formats {

struct Fingerprint {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
  // 32 hexadecimal digits.
  std::string hex() const;
};

// weight_type: what --weights made of the weights, "file" where nothing. kv_layout: KvLayout::id().
Fingerprint model_fingerprint(const Checkpoint& model, std::string_view weight_type,
                              std::string_view kv_layout);
Fingerprint model_fingerprint(const GgufFile& file, std::string_view weight_type, std::string_view kv_layout);

}  // namespace shoal::formats
