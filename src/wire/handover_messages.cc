#include "wire/handover_messages.h"

#include "wire/fields.h"

namespace shoal::wire {
namespace {

constexpr auto kRoom = [](auto& io, auto& room) {
  auto& terms = room.terms;
  fields(io, terms.build, terms.fingerprint);
  strings(io, terms.kv_ids);
  fields(io, terms.strict, terms.isa, terms.checksum);
  fields(io, room.room, room.prompt_tokens, room.prompt_digest);
  list_of(io, room.pages, 4 * 4,
          [&](auto& page) { fields(io, page.group, page.logical, page.slot, page.generation); });
};

constexpr auto kWrite = [](auto& io, auto& write) {
  fields(io, write.table, write.group, write.layer, write.first_head, write.heads, write.first_page,
         write.pages, write.checked);
};

constexpr auto kCommit = [](auto& io, auto& commit) {
  fields(io, commit.table, commit.writes, commit.bytes, commit.cached_tokens, commit.finished,
         commit.first_token, commit.logprob);
  list_of(io, commit.top, 4 + 4, [&](auto& each) { fields(io, each.id, each.logprob); });
};

}  // namespace

std::vector<std::byte> encode(const Room& room) { return encoded(room, kRoom); }
std::vector<std::byte> encode(const WriteHeader& write) { return encoded(write, kWrite); }
std::vector<std::byte> encode(const Commit& commit) { return encoded(commit, kCommit); }

Expected<Room> decode_room(std::span<const std::byte> body) {
  return decoded<Room>(body, kRoom, "a room message has other bytes");
}
Expected<WriteHeader> decode_write(std::span<const std::byte> header) {
  return decoded<WriteHeader>(header, kWrite, "a write message has other bytes");
}
Expected<Commit> decode_commit(std::span<const std::byte> body) {
  return decoded<Commit>(body, kCommit, "a commit message has other bytes");
}

}  // namespace shoal::wire
