#include "wire/registration_key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string_view>

namespace shoal::wire {

std::string registration_key(const ClusterToken& token) {
  constexpr std::string_view kText = "shoal gateway registration";
  const std::string& secret = token.secret();
  Mac mac{};
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(kText.data()), kText.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &length);
  return hex(mac.data(), mac.size());
}

}  // namespace shoal::wire
