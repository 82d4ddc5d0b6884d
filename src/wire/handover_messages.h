// The messages by which a decode worker gets the KV of a prompt from a prefill worker: docs/wire.md,
// section 8.
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
#include "layout/step_plan.h"

namespace shoal::wire {

// A page that a decode worker has reserved.
struct RoomPage {
  std::int32_t group = 0;
  std::int32_t logical = 0;
  std::int32_t slot = 0;
  std::uint32_t generation = 0;
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

// From the decode worker: this room, these pages.
struct Room {
  HandoverTerms terms;
  std::uint64_t room = 0;
  std::int32_t prompt_tokens = 0;
  std::uint64_t prompt_digest = 0;  // XXH3 of the token ids
  std::vector<RoomPage> pages;      // ascending by group, then logical page
};

// What follows in the frame: for each head the K tiles of the pages in logical order, then their V tiles;
// then a u64, the XXH3 of these bytes where `checked`, else 0.
struct WriteHeader {
  std::uint64_t table = 0;  // digest of the room's pages: room_digest()
  std::int32_t group = 0;
  std::int32_t layer = 0;  // in the group
  std::int32_t first_head = 0;
  std::int32_t heads = 0;
  std::int32_t first_page = 0;  // logical
  std::int32_t pages = 0;
  bool checked = false;

  static constexpr std::size_t kBytes = 8 + 6 * 4 + 1;
};

// From the prefill worker, after everything.
struct Commit {
  std::uint64_t table = 0;
  std::uint64_t writes = 0;
  std::uint64_t bytes = 0;  // of KV
  std::int32_t cached_tokens = 0;
  bool finished = false;
  TokenId first_token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

std::vector<std::byte> encode(const Room& room);
std::vector<std::byte> encode(const WriteHeader& write);
std::vector<std::byte> encode(const Commit& commit);
Expected<Room> decode_room(std::span<const std::byte> body);
Expected<WriteHeader> decode_write(std::span<const std::byte> header);
Expected<Commit> decode_commit(std::span<const std::byte> body);

}  // namespace shoal::wire
