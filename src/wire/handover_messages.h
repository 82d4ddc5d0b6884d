// The messages by which a decode worker gets the KV of a prompt from a prefill worker, and those between a
// worker's head and what moves KV in each of its ranks: docs/wire.md, section 8.
//
// Thread-safety: values and pure functions.
// Errors: decoding fails with kCorrupt where a body is not exactly its fields.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "layout/reshard.h"
#include "layout/step_plan.h"

namespace shoal::wire {

// A page that a decode worker has reserved; slot and generation in the pool of the coordinate that owns it.
struct RoomPage {
  std::int32_t group = 0;
  std::int32_t logical = 0;
  std::int32_t slot = 0;
  std::uint32_t generation = 0;

  friend bool operator==(const RoomPage&, const RoomPage&) = default;
};

// What both workers must have alike; sentences name what differs.
struct HandoverTerms {
  std::string build;
  std::string fingerprint;
  std::vector<std::string> kv_ids;  // by group
  bool strict = false;
  std::string isa;
  std::uint8_t checksum = 0;  // 0 off, 1 sampled, 2 full
};

// From the decode worker's head to the prefill worker's: this room.
struct Room {
  HandoverTerms terms;
  std::uint64_t room = 0;
  std::int32_t prompt_tokens = 0;
  std::uint64_t prompt_digest = 0;  // XXH3 of the token ids
  std::uint64_t table = 0;          // digest of all pages that it has reserved and lacks: room_digest()
};

// A rank of the prefill worker: where it sends KV from, and what it holds of a page.
struct SourceRank {
  std::string endpoint;         // "HOST:PORT"; ":PORT" at the host of the head
  std::int32_t coordinate = 0;  // whose pages it holds
  std::vector<KvPart> parts;    // by group
};

// From the prefill worker's head.
struct Accept {
  std::vector<SourceRank> ranks;
};

// Layers and heads of a group, by index in the model.
struct GroupPart {
  std::int32_t group = 0;
  KvPart part;
};

// From a rank of the decode worker to one of the prefill worker: what it is to write where.
struct Fetch {
  std::uint64_t room = 0;
  std::uint64_t table = 0;  // digest of the pages below
  std::string host;         // where it could read the pages itself; empty: bytes are to be sent
  std::uint8_t checksum = 0;
  std::vector<GroupPart> parts;
  std::vector<RoomPage> pages;  // ascending by group, then logical page
};

// From a prefill rank of the same host: its pages may be read where they lie.
struct Offer {
  struct Pool {
    std::uint64_t base = 0;
    std::int32_t slots = 0;
    KvPart part;
  };
  std::int32_t process = 0;
  std::uint64_t mark_address = 0;  // where mark_value is found in that process
  std::uint64_t mark_value = 0;
  std::vector<Pool> pools;  // by group
};

// What follows in the frame: for each head the K tiles of the pages in logical order, then their V tiles;
// then a u64, the XXH3 of these bytes where `checked`, else 0. Where they are read instead, in their place
// the slots of the pages, i32 each.
struct WriteHeader {
  std::uint64_t table = 0;  // the fetch's
  std::int32_t group = 0;
  std::int32_t layer = 0;       // in the group of the whole model
  std::int32_t first_head = 0;  // of the model's
  std::int32_t heads = 0;
  std::int32_t first_page = 0;  // logical
  std::int32_t pages = 0;
  bool checked = false;

  static constexpr std::size_t kBytes = 8 + 6 * 4 + 1;
};

// From the prefill worker's head, once the prompt is computed.
struct Commit {
  std::uint64_t table = 0;  // the room's
  std::int32_t cached_tokens = 0;
  bool finished = false;
  TokenId first_token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

// From the prefill worker's head: nothing will come of this room. of_request: another request would not be
// refused.
struct Refusal {
  std::string sentence;
  bool of_request = false;
};

// Between a head and its ranks' services, on the control connections.
struct RankWord {
  enum class Kind : std::uint8_t {
    kExpect = 1,     // head: ranks of a decode worker will fetch this room
    kLand = 2,       // head: fetch these pages
    kClose = 3,      // head: touch none of the room's pages any more
    kFree = 4,       // head: as kClose, but it has ended well: whoever is about to end may
    kMoving = 5,     // rank: bytes are moving; at most once a second
    kLanded = 6,     // rank: all of its pages are there
    kBroken = 7,     // rank: it cannot go on
    kListening = 8,  // rank: it may be called here
    kComputed = 9,   // head: the prompt is computed, on all ranks
  };
  // Ranks to fetch from, and what of each.
  struct Source {
    std::string endpoint;  // "HOST:PORT"
    std::vector<GroupPart> parts;
  };

  Kind kind = Kind::kClose;
  std::uint64_t room = 0;
  std::string text;  // why it closes or is broken; where it listens
  std::uint8_t checksum = 0;
  std::int32_t prompt_tokens = 0;  // of an expected room
  bool direct = false;             // pages may be read from a rank of the same host
  std::vector<Source> sources;
  std::vector<RoomPage> pages;
};

std::vector<std::byte> encode(const Room& room);
std::vector<std::byte> encode(const Accept& accept);
std::vector<std::byte> encode(const Refusal& refusal);
std::vector<std::byte> encode(const Fetch& fetch);
std::vector<std::byte> encode(const Offer& offer);
std::vector<std::byte> encode(const WriteHeader& write);
std::vector<std::byte> encode(const Commit& commit);
std::vector<std::byte> encode(const RankWord& word);
Expected<Room> decode_room(std::span<const std::byte> body);
Expected<Accept> decode_accept(std::span<const std::byte> body);
Expected<Refusal> decode_refusal(std::span<const std::byte> body);
Expected<Fetch> decode_fetch(std::span<const std::byte> body);
Expected<Offer> decode_offer(std::span<const std::byte> body);
Expected<WriteHeader> decode_write(std::span<const std::byte> header);
Expected<Commit> decode_commit(std::span<const std::byte> body);
Expected<RankWord> decode_word(std::span<const std::byte> body);

}  // namespace shoal::wire
