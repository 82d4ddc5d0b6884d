#include "wire/handover_messages.h"

#include <gtest/gtest.h>

#include <random>

namespace shoal::wire {
namespace {

// Every way of being too short, too long or damaged is an error or another valid message, never a crash.
template <typename Decode>
void expect_robust(const std::vector<std::byte>& bytes, Decode&& decode) {
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode(std::span(bytes).first(n)).ok()) << n;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer).ok());
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 + random() % 255);
    [[maybe_unused]] const bool ok = decode(damaged).ok();
  }
}

const RankWord kLand{
    RankWord::Kind::kLand,       5, "h:1", 2, 77, true, {{"h:1", {{0, {1, 2, 3, 4}}}}, {"h:2", {}}},
    {{0, 1, 2, 3}, {1, 4, 5, 6}}};

TEST(HandoverMessages, ComeBackAsTheyWent) {
  const Accept accept{{{":7", 1, {{0, 4, 2, 3}}}, {"h:8", 0, {{4, 1, 0, 3}}}}};
  const auto accepted = decode_accept(encode(accept));
  ASSERT_TRUE(accepted.ok());
  EXPECT_EQ(encode(*accepted), encode(accept));
  EXPECT_EQ(accepted->ranks[0].coordinate, 1);
  EXPECT_EQ(accepted->ranks[1].parts, accept.ranks[1].parts);
  const Fetch fetch{77, 99, "boot:3", 1, {{2, {0, 4, 2, 3}}}, {{0, 1, 2, 3}}};
  const auto fetched = decode_fetch(encode(fetch));
  ASSERT_TRUE(fetched.ok());
  EXPECT_EQ(encode(*fetched), encode(fetch));
  EXPECT_EQ(fetched->parts[0].part.first_head, 2);
  const Offer offer{7, 8, 9, {{4096, 12, {0, 4, 2, 3}}}};
  const auto offered = decode_offer(encode(offer));
  ASSERT_TRUE(offered.ok());
  EXPECT_EQ(encode(*offered), encode(offer));
  EXPECT_EQ(offered->pools[0].part, (KvPart{0, 4, 2, 3}));
  const auto word = decode_word(encode(kLand));
  ASSERT_TRUE(word.ok());
  EXPECT_EQ(encode(*word), encode(kLand));
  EXPECT_EQ(word->sources[0].parts[0].part, (KvPart{1, 2, 3, 4}));
  EXPECT_EQ(word->pages[1].generation, 6U);
}

TEST(HandoverMessages, DamagedOnesAreErrors) {
  Room room;
  room.terms = {"1", "f", {"a", "b"}, true, "amx", 2};
  expect_robust(encode(room), [](auto bytes) { return decode_room(bytes); });
  expect_robust(encode(Accept{{{":7", 1, {{0, 4, 2, 3}}}}}), [](auto bytes) { return decode_accept(bytes); });
  expect_robust(encode(Fetch{77, 99, "boot:3", 1, {{2, {0, 4, 2, 3}}}, {{0, 1, 2, 3}}}),
                [](auto bytes) { return decode_fetch(bytes); });
  expect_robust(encode(Commit{1, 2, true, 3, 0.5F, {{1, 2}}}),
                [](auto bytes) { return decode_commit(bytes); });
  expect_robust(encode(kLand), [](auto bytes) { return decode_word(bytes); });
  expect_robust(encode(Offer{7, 8, 9, {{4096, 12, {0, 4, 2, 3}}}}),
                [](auto bytes) { return decode_offer(bytes); });
  expect_robust(encode(Refusal{"no", true}), [](auto bytes) { return decode_refusal(bytes); });
  RankWord mode = kLand;
  mode.checksum = 3;
  EXPECT_FALSE(decode_word(encode(mode)).ok());
  std::vector<std::byte> unknown = encode(kLand);
  unknown[0] = std::byte{0};
  EXPECT_FALSE(decode_word(unknown).ok());
}

}  // namespace
}  // namespace shoal::wire
