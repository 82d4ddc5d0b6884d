#include "gateway/client_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <optional>

namespace shoal::gateway {
namespace {

constexpr std::size_t kLeastKeyBytes = 8;

std::optional<KeyDigest> digest_from_hex(std::string_view text) {
  KeyDigest digest{};
  if (text.size() != 2 * digest.size()) return std::nullopt;
  const auto value = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const int high = value(text[2 * i]);
    const int low = value(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return digest;
}

// Midnight UTC of that day.
std::int64_t seconds_of(const toml::date& date) {
  namespace chrono = std::chrono;
  const chrono::year_month_day day{chrono::year(date.year), chrono::month(date.month), chrono::day(date.day)};
  return chrono::sys_seconds(chrono::sys_days(day)).time_since_epoch().count();
}

class KeyReader {
 public:
  KeyReader(const toml::table& table, const std::string& file) : table_(table), file_(file) {}

  Status read(KeyDigest& digest, Tenant& tenant) {
    for (const auto& [key, node] : table_) {
      const std::string_view name = key.str();
      Status status;
      if (name == "key" || name == "sha256") {
        status = read_key(name, node, digest);
      } else if (name == "tenant") {
        tenant.name = node.value<std::string>().value_or("");
        if (!is_name(tenant.name))
          status = wrong(node, "'tenant' must be a name of letters, digits, '-', '_' and '.'");
      } else if (name == "models") {
        status = read_models(node, tenant);
      } else if (name == "max_running") {
        const auto most = node.value<std::int32_t>();
        if (!most || *most < 1) status = wrong(node, "'max_running' must be a number from 1");
        tenant.max_running = most.value_or(0);
      } else if (name == "expires") {
        const auto date = node.value<toml::date>();
        if (!date) status = wrong(node, "'expires' must be a date, as 2030-01-31");
        if (date) tenant.expires = seconds_of(*date);
      } else {
        status =
            wrong(node, fmt::format("there is no '{}' here; known: key, sha256, tenant, models, max_running, "
                                    "expires",
                                    name));
      }
      SHOAL_TRY(status);
    }
    if (found_ != 1) return wrong(table_, "a key needs 'key' or 'sha256', one of them");
    if (tenant.name.empty()) return wrong(table_, "a key needs its 'tenant'");
    return {};
  }

 private:
  static bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    });
  }

  Status read_key(std::string_view name, const toml::node& node, KeyDigest& digest) {
    ++found_;
    const auto text = node.value<std::string>().value_or("");
    if (name == "key") {
      digest = digest_of(text);
      return text.size() >= kLeastKeyBytes ? Status() : wrong(node, "'key' must have at least 8 characters");
    }
    const auto read = digest_from_hex(text);
    if (!read) return wrong(node, "'sha256' must be 64 hexadecimal digits");
    digest = *read;
    return {};
  }

  Status read_models(const toml::node& node, Tenant& tenant) {
    const toml::array* list = node.as_array();
    if (list == nullptr || list->empty())
      return wrong(node, "'models' must be a list of names, or left out for all");
    for (const toml::node& each : *list) {
      const auto model = each.value<std::string>();
      if (!model || model->empty()) return wrong(each, "'models' must be a list of names");
      tenant.models.push_back(*model);
    }
    return {};
  }

  Status wrong(const toml::node& node, const std::string& sentence) const {
    return {ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file_, node.source().begin.line, sentence)};
  }

  const toml::table& table_;
  const std::string& file_;
  int found_ = 0;
};

}  // namespace

bool Tenant::may_use(std::string_view model) const {
  return models.empty() || std::ranges::find(models, model) != models.end();
}

KeyDigest digest_of(std::string_view key) {
  KeyDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::string_view bearer_of(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() < kBearer.size()) return {};
  for (std::size_t i = 0; i < kBearer.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kBearer[i]) return {};
  }
  authorization.remove_prefix(kBearer.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  while (authorization.ends_with(' ')) authorization.remove_suffix(1);
  return authorization;
}

Expected<ClientKeys> ClientKeys::load(const std::filesystem::path& file) {
  const toml::parse_result parsed = toml::parse_file(file.string());
  const auto bad = [&](std::string sentence) {
    return Status(ErrorCode::kInvalidArgument, std::move(sentence));
  };
  if (!parsed)
    return bad(fmt::format("{}:{}: {}", file.string(), parsed.error().source().begin.line,
                           parsed.error().description()));
  const toml::table& table = parsed.table();
  for (const auto& [key, node] : table) {
    if (key.str() != "keys" || !node.is_array_of_tables())
      return bad(fmt::format("{}:{}: only tables begun by [[keys]] stand here", file.string(),
                             node.source().begin.line));
  }
  ClientKeys keys;
  const toml::array* list = table["keys"].as_array();
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    Key key;
    Tenant tenant;
    SHOAL_TRY(KeyReader(*list->get(i)->as_table(), file.string()).read(key.digest, tenant));
    key.tenant = std::make_shared<const Tenant>(std::move(tenant));
    keys.keys_.push_back(std::move(key));
  }
  // It would either lock everyone out or, worse, let everyone in.
  if (keys.keys_.empty()) return bad(fmt::format("{}: holds no [[keys]]", file.string()));
  return keys;
}

std::shared_ptr<const Tenant> ClientKeys::find(std::string_view authorization, std::int64_t unix_now) const {
  const KeyDigest digest = digest_of(bearer_of(authorization));
  std::shared_ptr<const Tenant> found;
  for (const Key& key : keys_) {
    if (CRYPTO_memcmp(digest.data(), key.digest.data(), digest.size()) == 0) found = key.tenant;
  }
  if (found != nullptr && found->expires != 0 && unix_now >= found->expires) return nullptr;
  return found;
}

}  // namespace shoal::gateway
