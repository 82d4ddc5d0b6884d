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
  fields(io, assign.model, assign.kv_dtype, assign.activations, assign.weights, assign.packed_cache,
         assign.strict);
  fields(io, assign.threads, assign.max_slots, assign.spin, assign.stage_layers);
  fields(io, assign.tp_split, assign.balance, assign.sums);
  fields(io, assign.network, assign.listen, assign.role, assign.handover_host, assign.handover_port,
         assign.fabric);
};

constexpr auto kLoaded = [](auto& io, auto& loaded) {
  fields(io, loaded.epoch, loaded.fingerprint);
  strings(io, loaded.kv_ids);
  fields(io, loaded.isa, loaded.page_bytes, loaded.available, loaded.mapped_weights, loaded.threads,
         loaded.endpoint);
  list_of(io, loaded.parts, 4 * 4,
          [&](auto& part) { fields(io, part.first_layer, part.layers, part.first_head, part.heads); });
};

constexpr auto kStart = [](auto& io, auto& start) {
  fields(io, start.pages, start.offload_places, start.lanes, start.meeting, start.ring_bytes);
  strings(io, start.hosts);
  strings(io, start.endpoints);
  field(io, start.first_plan);
};

constexpr auto kFailed = [](auto& io, auto& failed) { fields(io, failed.epoch, failed.sentence); };

constexpr auto kTraffic = [](auto& io, auto& traffic) {
  list_of(io, traffic.lines, 1 + 6 * 8, [&](auto& line) {
    fields(io, line.purpose, line.calls, line.payload, line.host, line.network, line.hidden_ns,
           line.exposed_ns);
  });
};

constexpr auto kProgress = [](auto& io, auto& thousandths) { field(io, thousandths); };

constexpr auto kEpoch = [](auto& io, auto& epoch) { field(io, epoch); };

constexpr auto kSentence = [](auto& io, auto& sentence) { field(io, sentence); };

}  // namespace

std::vector<std::byte> encode(const Join& join) { return encoded(join, kJoin); }
std::vector<std::byte> encode(const Assign& assign) { return encoded(assign, kAssign); }
std::vector<std::byte> encode(const Loaded& loaded) { return encoded(loaded, kLoaded); }
std::vector<std::byte> encode(const Start& start) { return encoded(start, kStart); }
std::vector<std::byte> encode(const Failed& failed) { return encoded(failed, kFailed); }
std::vector<std::byte> encode(const Traffic& traffic) { return encoded(traffic, kTraffic); }
std::vector<std::byte> encode_progress(std::uint32_t thousandths) { return encoded(thousandths, kProgress); }
std::vector<std::byte> encode_epoch(Epoch epoch) { return encoded(epoch, kEpoch); }
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
Expected<Failed> decode_failed(std::span<const std::byte> body) {
  return decoded<Failed>(body, kFailed, "a failed message has other bytes");
}
Expected<Traffic> decode_traffic(std::span<const std::byte> body) {
  return decoded<Traffic>(body, kTraffic, "a traffic message has other bytes");
}
Expected<std::uint32_t> decode_progress(std::span<const std::byte> body) {
  return decoded<std::uint32_t>(body, kProgress, "a progress message has other bytes");
}
Expected<Epoch> decode_epoch(std::span<const std::byte> body) {
  return decoded<Epoch>(body, kEpoch, "a message that is an epoch has other bytes");
}
Expected<std::string> decode_sentence(std::span<const std::byte> body) {
  return decoded<std::string>(body, kSentence, "a sentence message has other bytes");
}

}  // namespace shoal::wire
