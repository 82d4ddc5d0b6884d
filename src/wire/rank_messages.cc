#include "wire/rank_messages.h"

#include "wire/fields.h"

namespace shoal::wire {
namespace {

constexpr auto kJoin = [](auto& io, auto& join) {
  fields(io, join.build, join.host, join.rank, join.cores, join.pid);
};

constexpr auto kAssign = [](auto& io, auto& assign) {
  auto& degrees = assign.degrees;
  fields(io, assign.rank, degrees.tp, degrees.pp, degrees.cp, degrees.dp, degrees.ep, assign.epoch);
  fields(io, assign.model, assign.kv_dtype, assign.activations, assign.weights, assign.strict);
  fields(io, assign.threads, assign.max_slots, assign.spin, assign.stage_layers);
  fields(io, assign.tp_split, assign.balance);
};

constexpr auto kLoaded = [](auto& io, auto& loaded) {
  field(io, loaded.fingerprint);
  strings(io, loaded.kv_ids);
  fields(io, loaded.isa, loaded.page_bytes, loaded.available, loaded.threads);
};

constexpr auto kStart = [](auto& io, auto& start) {
  fields(io, start.pages, start.lanes, start.meeting, start.ring_bytes);
  strings(io, start.hosts);
};

constexpr auto kSentence = [](auto& io, auto& sentence) { field(io, sentence); };

}  // namespace

std::vector<std::byte> encode(const Join& join) { return encoded(join, kJoin); }
std::vector<std::byte> encode(const Assign& assign) { return encoded(assign, kAssign); }
std::vector<std::byte> encode(const Loaded& loaded) { return encoded(loaded, kLoaded); }
std::vector<std::byte> encode(const Start& start) { return encoded(start, kStart); }
std::vector<std::byte> encode_sentence(std::string_view sentence) {
  return encoded(std::string(sentence), kSentence);
}

Expected<Join> decode_join(std::span<const std::byte> body) {
  return decoded<Join>(body, kJoin, "a join message has other bytes");
}
Expected<Assign> decode_assign(std::span<const std::byte> body) {
  return decoded<Assign>(body, kAssign, "an assign message has other bytes");
}
Expected<Loaded> decode_loaded(std::span<const std::byte> body) {
  return decoded<Loaded>(body, kLoaded, "a loaded message has other bytes");
}
Expected<Start> decode_start(std::span<const std::byte> body) {
  return decoded<Start>(body, kStart, "a start message has other bytes");
}
Expected<std::string> decode_sentence(std::span<const std::byte> body) {
  return decoded<std::string>(body, kSentence, "a sentence message has other bytes");
}

}  // namespace shoal::wire
