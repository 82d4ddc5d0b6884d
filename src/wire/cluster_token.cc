#include "wire/cluster_token.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace shoal::wire {
namespace {

constexpr std::size_t kLeast = 16;
constexpr std::size_t kMost = 4096;

}  // namespace

Expected<ClusterToken> ClusterToken::parse(std::string secret, const std::string& source) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = secret.find_first_not_of(kSpace);
  secret = first == std::string::npos ? std::string()
                                      : secret.substr(first, secret.find_last_not_of(kSpace) - first + 1);
  if (secret.size() < kLeast || secret.size() > kMost)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a cluster token has {} to {} bytes, this one {}", source, kLeast, kMost,
                              secret.size()));
  return ClusterToken(std::move(secret));
}

Expected<ClusterToken> ClusterToken::load(const std::filesystem::path& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string secret(kMost + 256, '\0');
  in.read(secret.data(), static_cast<std::streamsize>(secret.size()));
  secret.resize(static_cast<std::size_t>(in.gcount()));
  if (secret.empty() && !in.eof())
    return Status(ErrorCode::kNotFound,
                  fmt::format("{}: the cluster token cannot be read{}{}", file.string(),
                              errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : ""));
  return parse(std::move(secret), file.string());
}

Expected<ClusterToken> ClusterToken::draw() {
  SHOAL_ASSIGN(nonce, draw_nonce());
  return ClusterToken(hex(nonce.data(), nonce.size()));
}

Mac ClusterToken::mac(const char* who, LinkPurpose purpose, const Nonce& caller, const Nonce& callee) const {
  std::vector<unsigned char> text(who, who + std::string_view(who).size());
  text.push_back(static_cast<unsigned char>(purpose));
  for (const Nonce* nonce : {&caller, &callee}) {
    for (const std::byte b : *nonce) text.push_back(static_cast<unsigned char>(b));
  }
  Mac mac{};
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()), text.data(), text.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &length);
  return mac;
}

Mac ClusterToken::callee_proof(LinkPurpose purpose, const Nonce& caller, const Nonce& callee) const {
  return mac("shoal callee", purpose, caller, callee);
}

Mac ClusterToken::caller_proof(LinkPurpose purpose, const Nonce& caller, const Nonce& callee) const {
  return mac("shoal caller", purpose, caller, callee);
}

Expected<Nonce> draw_nonce() {
  Nonce nonce{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1)
    return Status(ErrorCode::kInternal, "the system gives no random bytes");
  return nonce;
}

bool same_mac(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

std::string hex(const std::byte* bytes, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  return text;
}

}  // namespace shoal::wire
