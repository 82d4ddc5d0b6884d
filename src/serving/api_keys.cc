#include "serving/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <cctype>
#include <fstream>
#include <string>

namespace shoal::serving {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_bearer(std::string_view scheme) {
  constexpr std::string_view kBearer = "bearer";
  if (scheme.size() != kBearer.size()) return false;
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(scheme[i])) != kBearer[i]) return false;
  }
  return true;
}

}  // namespace

Expected<ApiKeys> ApiKeys::load(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return Status(ErrorCode::kIo, fmt::format("{}: cannot read the API keys", file.string()));
  ApiKeys keys;
  for (std::string line; std::getline(in, line);) {
    const std::string_view key = trimmed(line);
    if (!key.empty() && key.front() != '#') keys.digests_.push_back(digest_of(key));
  }
  if (keys.digests_.empty()) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{}: holds no API key", file.string()));
  }
  return keys;
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

bool ApiKeys::admits(std::string_view authorization) const {
  if (!required()) return true;
  const auto space = authorization.find(' ');
  if (space == std::string_view::npos || !is_bearer(authorization.substr(0, space))) return false;
  const Digest given = digest_of(trimmed(authorization.substr(space + 1)));
  bool found = false;
  for (const Digest& digest : digests_)
    found |= CRYPTO_memcmp(given.data(), digest.data(), digest.size()) == 0;
  return found;
}

}  // namespace shoal::serving
