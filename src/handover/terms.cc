#include "handover/terms.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <utility>

namespace shoal::handover {

std::optional<Checksums> checksums_from_name(std::string_view name) {
  if (name == "off") return Checksums::kOff;
  if (name == "sampled") return Checksums::kSampled;
  if (name == "full") return Checksums::kFull;
  return std::nullopt;
}

wire::HandoverTerms terms_of(const engine::KvPools& pools, std::string fingerprint, std::string build,
                             Checksums checksums) {
  wire::HandoverTerms terms;
  terms.build = std::move(build);
  terms.fingerprint = std::move(fingerprint);
  terms.kv_ids = pools.ids;
  terms.strict = pools.strict;
  terms.isa = pools.isa;
  terms.checksum = static_cast<std::uint8_t>(checksums);
  return terms;
}

Status check_terms(const wire::HandoverTerms& prefill, const wire::HandoverTerms& decode) {
  const auto differs = [](const char* what, const auto& there, const auto& here, const char* remedy) {
    return Status(
        ErrorCode::kUnavailable,
        fmt::format("the prefill worker has {} {}, the decode worker {}: {}", what, there, here, remedy));
  };
  const auto mode = [](bool strict) { return strict ? "--deterministic" : "the default mode"; };
  if (prefill.build != decode.build)
    return differs("build", prefill.build, decode.build, "run the same program on both");
  if (prefill.fingerprint != decode.fingerprint)
    return differs("model", prefill.fingerprint, decode.fingerprint,
                   "start both from the same file with the same --weights");
  if (prefill.kv_ids != decode.kv_ids)
    return differs("KV layout", fmt::format("{}", fmt::join(prefill.kv_ids, " ")),
                   fmt::format("{}", fmt::join(decode.kv_ids, " ")), "start both with the same --kv-dtype");
  if (prefill.strict != decode.strict)
    return differs("mode", mode(prefill.strict), mode(decode.strict), "start both alike");
  if (prefill.strict && prefill.isa != decode.isa)
    return differs("instruction set", prefill.isa, decode.isa,
                   "with --deterministic both need the same, see SHOAL_ISA");
  return {};
}

std::uint64_t room_digest(std::uint64_t room, const std::vector<wire::RoomPage>& pages) {
  static_assert(sizeof(wire::RoomPage) == 16, "hashed as it lies: no padding");
  return XXH3_64bits_withSeed(pages.data(), pages.size() * sizeof(wire::RoomPage), room);
}

RunningSum::RunningSum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
RunningSum::~RunningSum() { XXH3_freeState(state_); }
void RunningSum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_, bytes.data(), bytes.size());
}
std::uint64_t RunningSum::value() const { return XXH3_64bits_digest(state_); }

std::vector<std::byte> sealed(std::vector<std::byte> body) {
  const std::uint64_t sum = XXH3_64bits(body.data(), body.size());
  const auto bytes = std::as_bytes(std::span(&sum, 1));
  body.insert(body.end(), bytes.begin(), bytes.end());
  return body;
}

Expected<std::span<const std::byte>> unsealed(std::span<const std::byte> body) {
  std::uint64_t sum = 0;
  if (body.size() >= sizeof sum) {
    const auto rest = body.first(body.size() - sizeof sum);
    std::memcpy(&sum, body.data() + rest.size(), sizeof sum);
    if (sum == XXH3_64bits(rest.data(), rest.size())) return rest;
  }
  return Status(ErrorCode::kCorrupt, "a message came with other bytes than it was sent with");
}

std::uint64_t prompt_digest(std::span<const TokenId> prompt) {
  return XXH3_64bits(prompt.data(), prompt.size_bytes());
}

}  // namespace shoal::handover
