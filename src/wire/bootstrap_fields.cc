#include "wire/bootstrap_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "wire/json.h"
#include "wire/openai_request.h"

namespace shoal::wire {
namespace {

constexpr std::size_t kMostSequences = kMaxPrompts * static_cast<std::size_t>(kMaxChoices);
constexpr std::size_t kMostHostBytes = 255;

// What can be part of a name or an address: it becomes part of a request's head, and is looked up.
bool is_host(const std::string& text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':' || c == '%' || c == '[' || c == ']';
  });
}

// f(element, path, index) for a single value, or for each of a list.
template <typename F>
Status for_each(JsonElement element, const std::string& name, F&& f) {
  simdjson::dom::array list;
  if (element.get_array().get(list) != simdjson::SUCCESS) return f(element, name, 0);
  std::size_t at = 0;
  for (const JsonElement item : list) {
    if (at == kMostSequences)
      return field_error(name, fmt::format("has more than {} entries", kMostSequences));
    SHOAL_TRY(f(item, fmt::format("{}[{}]", name, at), at));
    ++at;
  }
  return {};
}

// A field beside the rooms: one value for all, or as many as there are rooms.
template <typename F>
Status beside(const JsonFields& body, const char* name, std::vector<BootstrapEntry>& out, F&& set) {
  const auto element = body.find(name);
  if (!element) return {};
  const bool list = element->is_array();
  if (list && element->get_array().value_unsafe().size() != out.size())
    return field_error(name, fmt::format("must have {} entries, as bootstrap_room has", out.size()));
  return for_each(*element, name, [&](JsonElement item, const std::string& path, std::size_t at) -> Status {
    if (item.is_null()) return {};
    if (list) return set(item, path, out[at]);
    for (BootstrapEntry& entry : out) SHOAL_TRY(set(item, path, entry));
    return {};
  });
}

}  // namespace

Status read_bootstrap_fields(const JsonFields& body, std::vector<BootstrapEntry>& out) {
  const auto rooms = body.find("bootstrap_room");
  if (!rooms) {
    if (body.has("bootstrap_host"))
      return field_error("bootstrap_room", "must be given where bootstrap_host is");
    return {};
  }
  SHOAL_TRY(for_each(
      *rooms, "bootstrap_room", [&](JsonElement item, const std::string& path, std::size_t) -> Status {
        SHOAL_ASSIGN(room, json_integer(item, path, 0, std::numeric_limits<std::int64_t>::max()));
        out.emplace_back().room = static_cast<std::uint64_t>(room);
        return {};
      }));
  if (out.empty()) return field_error("bootstrap_room", "must not be empty");
  SHOAL_TRY(beside(body, "bootstrap_host", out,
                   [](JsonElement item, const std::string& path, BootstrapEntry& entry) -> Status {
                     SHOAL_ASSIGN(host, json_text(item, path));
                     if (host.size() > kMostHostBytes || !is_host(host))
                       return field_error(path, "is no host's name or address");
                     entry.host = std::move(host);
                     return {};
                   }));
  return beside(body, "bootstrap_port", out,
                [](JsonElement item, const std::string& path, BootstrapEntry& entry) -> Status {
                  SHOAL_ASSIGN(port, json_integer(item, path, 1, 65535));
                  entry.port = static_cast<std::uint16_t>(port);
                  return {};
                });
}

}  // namespace shoal::wire
