// Who may ask what: API keys with the tenant each belongs to, the models it may use and how many requests of
// it may run at once.
//
// Thread-safety: immutable after loading.
// Ownership: holds digests of the keys, not the keys.
// Invariants: looking a key up takes the same time whatever it is, so that timing tells nothing.

#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::gateway {

struct Tenant {
  std::string name;
  std::vector<std::string> models;  // empty: all
  std::int32_t max_running = 0;     // requests of this key, not of all the tenant's; 0: as many as come
  std::int64_t expires = 0;         // seconds since 1970; 0: never

  bool may_use(std::string_view model) const;
};

using KeyDigest = std::array<std::uint8_t, 32>;
KeyDigest digest_of(std::string_view key);
// The KEY of "Bearer KEY"; empty where it is something else.
std::string_view bearer_of(std::string_view authorization);

class ClientKeys {
 public:
  // No keys: everyone may ask, as the tenant "default".
  ClientKeys() = default;
  // A TOML file of [[keys]] with `key` or `sha256` (of the key, 64 hexadecimal digits), `tenant`, and where
  // wanted `models`, `max_running`, `expires` (a date). Errors name the file and the line.
  static Expected<ClientKeys> load(const std::filesystem::path& file);

  bool required() const { return !keys_.empty(); }
  // Null where the key is unknown or has expired. unix_now: seconds since 1970.
  std::shared_ptr<const Tenant> find(std::string_view authorization, std::int64_t unix_now) const;

 private:
  struct Key {
    KeyDigest digest;
    std::shared_ptr<const Tenant> tenant;
  };
  std::vector<Key> keys_;
};

}  // namespace shoal::gateway
