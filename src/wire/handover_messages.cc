#include "wire/handover_messages.h"

#include "wire/fields.h"

namespace shoal::wire {
namespace {

constexpr std::size_t kPart = 4 * 4;
constexpr std::size_t kPage = 4 * 4;

constexpr auto kKvPart = [](auto& io, auto& part) {
  fields(io, part.first_layer, part.layers, part.first_head, part.heads);
};

constexpr auto kGroupParts = [](auto& io, auto& parts) {
  list_of(io, parts, 4 + kPart, [&](auto& each) {
    field(io, each.group);
    kKvPart(io, each.part);
  });
};

constexpr auto kPages = [](auto& io, auto& pages) {
  list_of(io, pages, kPage,
          [&](auto& page) { fields(io, page.group, page.logical, page.slot, page.generation); });
};

// 0 to 2.
void checksum_mode(ByteWriter& out, const std::uint8_t& mode) { out.put(mode); }
void checksum_mode(ByteReader& in, std::uint8_t& mode) {
  in.get(mode);
  if (mode > 2) in.fail();
}

constexpr auto kRoom = [](auto& io, auto& room) {
  auto& terms = room.terms;
  fields(io, terms.build, terms.fingerprint);
  strings(io, terms.kv_ids);
  fields(io, terms.strict, terms.isa);
  checksum_mode(io, terms.checksum);
  fields(io, room.room, room.prompt_tokens, room.prompt_digest, room.table);
};

constexpr auto kAccept = [](auto& io, auto& accept) {
  list_of(io, accept.ranks, 4 + 4 + 4, [&](auto& rank) {
    fields(io, rank.endpoint, rank.coordinate);
    list_of(io, rank.parts, kPart, [&](auto& part) { kKvPart(io, part); });
  });
};

constexpr auto kRefusal = [](auto& io, auto& refusal) { fields(io, refusal.sentence, refusal.of_request); };

constexpr auto kFetch = [](auto& io, auto& fetch) {
  fields(io, fetch.room, fetch.table, fetch.host);
  checksum_mode(io, fetch.checksum);
  kGroupParts(io, fetch.parts);
  kPages(io, fetch.pages);
};

constexpr auto kOffer = [](auto& io, auto& offer) {
  fields(io, offer.process, offer.mark_address, offer.mark_value);
  list_of(io, offer.pools, 8 + 4 + kPart, [&](auto& pool) {
    fields(io, pool.base, pool.slots);
    kKvPart(io, pool.part);
  });
};

constexpr auto kWrite = [](auto& io, auto& write) {
  fields(io, write.table, write.group, write.layer, write.first_head, write.heads, write.first_page,
         write.pages, write.checked);
};

constexpr auto kCommit = [](auto& io, auto& commit) {
  fields(io, commit.table, commit.cached_tokens, commit.finished, commit.first_token, commit.logprob);
  list_of(io, commit.top, 4 + 4, [&](auto& each) { fields(io, each.id, each.logprob); });
};

// Words go between processes of one build that have proved who they are: an unknown kind does no harm.
void field(ByteWriter& out, const RankWord::Kind& kind) { out.put(static_cast<std::uint8_t>(kind)); }
void field(ByteReader& in, RankWord::Kind& kind) {
  const auto value = in.get<std::uint8_t>();
  if (value < 1 || value > static_cast<std::uint8_t>(RankWord::Kind::kComputed)) in.fail();
  kind = static_cast<RankWord::Kind>(value);
}

constexpr auto kWord = [](auto& io, auto& word) {
  field(io, word.kind);
  fields(io, word.room, word.text);
  checksum_mode(io, word.checksum);
  fields(io, word.prompt_tokens, word.direct);
  list_of(io, word.sources, 4 + 4, [&](auto& source) {
    field(io, source.endpoint);
    kGroupParts(io, source.parts);
  });
  kPages(io, word.pages);
};

}  // namespace

std::vector<std::byte> encode(const Room& room) { return encoded(room, kRoom); }
std::vector<std::byte> encode(const Accept& accept) { return encoded(accept, kAccept); }
std::vector<std::byte> encode(const Refusal& refusal) { return encoded(refusal, kRefusal); }
std::vector<std::byte> encode(const Fetch& fetch) { return encoded(fetch, kFetch); }
std::vector<std::byte> encode(const Offer& offer) { return encoded(offer, kOffer); }
std::vector<std::byte> encode(const WriteHeader& write) { return encoded(write, kWrite); }
std::vector<std::byte> encode(const Commit& commit) { return encoded(commit, kCommit); }
std::vector<std::byte> encode(const RankWord& word) { return encoded(word, kWord); }

Expected<Room> decode_room(std::span<const std::byte> body) {
  return decoded<Room>(body, kRoom, "a room message has other bytes");
}
Expected<Accept> decode_accept(std::span<const std::byte> body) {
  return decoded<Accept>(body, kAccept, "an accept message has other bytes");
}
Expected<Refusal> decode_refusal(std::span<const std::byte> body) {
  return decoded<Refusal>(body, kRefusal, "a refuse message has other bytes");
}
Expected<Fetch> decode_fetch(std::span<const std::byte> body) {
  return decoded<Fetch>(body, kFetch, "a fetch message has other bytes");
}
Expected<Offer> decode_offer(std::span<const std::byte> body) {
  return decoded<Offer>(body, kOffer, "an offer message has other bytes");
}
Expected<WriteHeader> decode_write(std::span<const std::byte> header) {
  return decoded<WriteHeader>(header, kWrite, "a write message has other bytes");
}
Expected<Commit> decode_commit(std::span<const std::byte> body) {
  return decoded<Commit>(body, kCommit, "a commit message has other bytes");
}
Expected<RankWord> decode_word(std::span<const std::byte> body) {
  return decoded<RankWord>(body, kWord, "a word between head and rank has other bytes");
}

}  // namespace shoal::wire
