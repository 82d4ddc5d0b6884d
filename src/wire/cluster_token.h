// The secret that the processes of a cluster share, and proofs that one holds it: docs/wire.md, section 2.
//
// Thread-safety: values and pure functions.
// Invariants: the secret is in no message, no log line and no error.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/expected.h"

namespace shoal::wire {

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

enum class LinkPurpose : std::uint8_t { kControl = 1, kCarrier = 2, kHandover = 3 };

class ClusterToken {
 public:
  // 16 to 4,096 bytes once white space at the ends is gone; else kInvalidArgument naming the file.
  static Expected<ClusterToken> load(const std::filesystem::path& file);
  // Of bytes that came down a pipe; the same rules.
  static Expected<ClusterToken> parse(std::string secret, const std::string& source);
  // 32 random bytes, as hexadecimal digits.
  static Expected<ClusterToken> draw();

  const std::string& secret() const { return secret_; }
  Mac callee_proof(LinkPurpose purpose, const Nonce& caller, const Nonce& callee) const;
  Mac caller_proof(LinkPurpose purpose, const Nonce& caller, const Nonce& callee) const;

 private:
  explicit ClusterToken(std::string secret) : secret_(std::move(secret)) {}
  Mac mac(const char* who, LinkPurpose purpose, const Nonce& caller, const Nonce& callee) const;

  std::string secret_;
};

// From the system; kInternal where it has no random bytes.
Expected<Nonce> draw_nonce();
// In constant time.
bool same_mac(const Mac& a, const Mac& b);
std::string hex(const std::byte* bytes, std::size_t n);

}  // namespace shoal::wire
