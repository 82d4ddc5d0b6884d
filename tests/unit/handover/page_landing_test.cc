// What a prefill worker that is confused, or worse, can do to a decode worker's pages: nothing.

#include "handover/page_landing.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "handover/terms.h"
#include "tensor/buffer.h"
#include "wire/handover_messages.h"

namespace shoal::handover {
namespace {

using wire::MessageType;

constexpr std::byte kUntouched{0x55};

struct Landing {
  Landing() {
    KvLayout layout{2, 3, 4, 8, KvDType::kBf16};
    bytes.assign(layout.pool_bytes(), kUntouched);
    pools.views = {{bytes.data(), layout}};
    // Of a model with more layers and heads.
    pools.parts = {{3, 2, 1, 3}};
    asked = {{0, 2, 5, 1}, {0, 3, 6, 1}, {0, 4, 1, 9}};
    landing.emplace(pools, 77, asked);
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    ours = *RoomLink::make(comm::Socket(ends[0]));
    theirs = *RoomLink::make(comm::Socket(ends[1]));
  }

  wire::WriteHeader header(std::int32_t layer = 0) const {
    wire::WriteHeader write;
    write.table = room_digest(77, asked);
    write.layer = 3 + layer;
    write.first_head = 1;
    write.heads = 3;
    write.first_page = 2;
    write.pages = 3;
    write.checked = true;
    return write;
  }
  std::vector<std::byte> data_of(const wire::WriteHeader& write) const {
    const std::size_t tile = pools.views[0].layout.tile_bytes();
    std::vector<std::byte> data(2 * tile * static_cast<std::size_t>(std::max(write.heads, 0)) *
                                static_cast<std::size_t>(std::max(write.pages, 0)));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
    return data;
  }
  // flip: a byte of the data that changes on its way; wrong: bytes more than the header says.
  Status write(const wire::WriteHeader& write, std::optional<std::size_t> flip = {}, std::size_t wrong = 0) {
    std::vector<std::byte> data = data_of(write);
    RunningSum sum;
    sum.add(data);
    std::uint64_t trailer = write.checked ? sum.value() : 0;
    if (flip) data[*flip] ^= std::byte{1};
    data.resize(data.size() + wrong);
    const auto length = static_cast<std::uint32_t>(wire::WriteHeader::kBytes + data.size() + 8);
    std::thread sender([&] {
      // Fails where the other end hangs up first.
      [[maybe_unused]] Status sent = theirs->begin_frame(MessageType::kWrite, length);
      sent = theirs->put(wire::encode(write));
      sent = theirs->put(data);
      sent = theirs->put(std::as_bytes(std::span(&trailer, 1)));
      theirs->end_frame();
    });
    Status status;
    if (const auto frame = ours->await_frame(); frame.ok()) {
      status = landing->take(*ours, **frame, guard).status();
    } else {
      status = frame.error();
    }
    if (!status.ok()) ours->abort("");
    sender.join();
    return status;
  }
  bool untouched() const {
    return std::ranges::all_of(bytes, [](std::byte each) { return each == kUntouched; });
  }
  std::vector<std::byte> bytes;
  RankPools pools;
  std::vector<wire::RoomPage> asked;
  std::optional<PageLanding> landing;
  std::unique_ptr<RoomLink> ours, theirs;
  PageGuard guard;
};

TEST(PageLanding, BytesComeToTheirSlots) {
  Landing at;
  ASSERT_TRUE(at.write(at.header(0)).ok());
  ASSERT_TRUE(at.write(at.header(1)).ok());
  const KvLayout& layout = at.pools.views[0].layout;
  const std::vector<std::byte> data = at.data_of(at.header());
  const std::size_t tile = layout.tile_bytes();
  for (const std::int32_t layer : {0, 1}) {
    std::size_t from = 0;
    for (std::int32_t head = 0; head < 3; ++head) {
      for (const bool values : {false, true}) {
        for (const std::int32_t slot : {5, 6, 1}) {
          const std::size_t to = values ? layout.v_tile(layer, head, slot) : layout.k_tile(layer, head, slot);
          EXPECT_TRUE(std::equal(data.begin() + static_cast<std::ptrdiff_t>(from),
                                 data.begin() + static_cast<std::ptrdiff_t>(from + tile),
                                 at.bytes.begin() + static_cast<std::ptrdiff_t>(to)));
          from += tile;
        }
        for (const std::int32_t slot : {0, 2, 3, 4, 7}) {
          const std::size_t to = values ? layout.v_tile(layer, head, slot) : layout.k_tile(layer, head, slot);
          EXPECT_EQ(at.bytes[to], kUntouched);
          EXPECT_EQ(at.bytes[to + tile - 1], kUntouched);
        }
      }
    }
  }
  EXPECT_TRUE(at.landing->complete());
}

TEST(PageLanding, ItIsCompleteWithTheLastPartAndNotBefore) {
  Landing at;
  EXPECT_FALSE(at.landing->complete());
  ASSERT_TRUE(at.write(at.header(0)).ok());
  EXPECT_FALSE(at.landing->complete());
  wire::WriteHeader part = at.header(1);
  part.heads = 2;
  ASSERT_TRUE(at.write(part).ok());
  EXPECT_FALSE(at.landing->complete());
  part.first_head = 3;
  part.heads = 1;
  ASSERT_TRUE(at.write(part).ok());
  EXPECT_TRUE(at.landing->complete());
  // Nothing asked for is there from the beginning.
  EXPECT_TRUE(PageLanding(at.pools, 1, {}).complete());
}

TEST(PageLanding, WhatCameWithOtherBytesHasNotLanded) {
  Landing at;
  ASSERT_TRUE(at.write(at.header(0)).ok());
  ASSERT_FALSE(at.write(at.header(1), 5).ok());
  EXPECT_FALSE(at.landing->complete());
}

TEST(PageLanding, WhatWasNotAskedForPlacesNothing) {
  const auto stray = [](auto&& change) {
    Landing at;
    wire::WriteHeader write = at.header();
    change(write);
    const Status status = at.write(write);
    EXPECT_EQ(status.code(), ErrorCode::kCorrupt) << status.message();
    EXPECT_TRUE(at.untouched());
  };
  stray([](wire::WriteHeader& write) { ++write.table; });
  stray([](wire::WriteHeader& write) { write.group = 1; });
  stray([](wire::WriteHeader& write) { write.group = -1; });
  stray([](wire::WriteHeader& write) { write.layer = 5; });
  stray([](wire::WriteHeader& write) { write.layer = 2; });
  stray([](wire::WriteHeader& write) { write.first_head = 2; });
  stray([](wire::WriteHeader& write) { write.first_head = 0; });
  stray([](wire::WriteHeader& write) { write.heads = 0; });
  stray([](wire::WriteHeader& write) {
    write.heads = std::numeric_limits<std::int32_t>::max();
    write.pages = 0;
  });
  stray([](wire::WriteHeader& write) { write.first_page = 1; });
  stray([](wire::WriteHeader& write) { write.pages = 4; });
  stray([](wire::WriteHeader& write) { write.pages = 0; });
  stray([](wire::WriteHeader& write) { write.pages = -1; });
}

TEST(PageLanding, APageComesOnce) {
  Landing at;
  ASSERT_TRUE(at.write(at.header()).ok());
  wire::WriteHeader again = at.header();
  again.first_page = 4;
  again.pages = 1;
  again.first_head = 3;
  again.heads = 1;
  EXPECT_EQ(at.write(again).code(), ErrorCode::kCorrupt);
}

TEST(PageLanding, AFlippedByteIsCaughtWhereItIsChecked) {
  for (const std::size_t byte : {0, 100, 4000}) {
    Landing at;
    const Status status = at.write(at.header(), byte);
    EXPECT_NE(status.message().find("checksum"), std::string::npos) << status.message();
  }
  Landing at;
  wire::WriteHeader unchecked = at.header();
  unchecked.checked = false;
  EXPECT_TRUE(at.write(unchecked, 0).ok());
}

TEST(PageLanding, AFrameIsAsLongAsItsHeaderSays) {
  Landing at;
  EXPECT_EQ(at.write(at.header(), {}, 64).code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(at.untouched());
}

TEST(PageLanding, AfterTheGateIsClosedNothingIsPlaced) {
  Landing at;
  at.guard.close();
  EXPECT_EQ(at.write(at.header()).code(), ErrorCode::kCancelled);
  EXPECT_TRUE(at.untouched());
}

// Pages of a rank that holds more layers and heads, in this very process.
struct Offered {
  Offered() : bytes(layout.pool_bytes()) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 11 + i / 251);
    direct.memory = PeerMemory(::getpid());
    direct.pools = {{reinterpret_cast<std::uint64_t>(bytes.data()), layout.slots, {2, 4, 0, 5}}};
  }
  // The frame's body as it is, whatever its header says.
  Status take(Landing& at, const wire::WriteHeader& write, const std::vector<std::int32_t>& slots,
              std::uint64_t sum) {
    const auto length = static_cast<std::uint32_t>(wire::WriteHeader::kBytes + 4 * slots.size() + 8);
    EXPECT_TRUE(at.theirs->begin_frame(MessageType::kWrite, length).ok());
    EXPECT_TRUE(at.theirs->put(wire::encode(write)).ok());
    EXPECT_TRUE(at.theirs->put(std::as_bytes(std::span(slots))).ok());
    EXPECT_TRUE(at.theirs->put(std::as_bytes(std::span(&sum, 1))).ok());
    at.theirs->end_frame();
    const auto frame = at.ours->await_frame();
    EXPECT_TRUE(frame.ok());
    return at.landing->take(*at.ours, **frame, at.guard, &direct).status();
  }
  KvLayout layout{4, 5, 4, 20, KvDType::kBf16};
  std::vector<std::byte> bytes;
  PageLanding::Direct direct;
};

TEST(PageLanding, PagesOfTheSameHostAreReadWhereTheyLie) {
  Landing at;
  Offered offered;
  // Neighbours here (5, 6) and there (17, 18), only there, only here.
  const std::vector<std::int32_t> slots = {17, 18, 19};
  for (const std::int32_t layer : {0, 1}) {
    RunningSum sum;
    for (std::int32_t head = 1; head < 4; ++head) {
      for (const bool values : {false, true}) {
        for (const std::int32_t slot : slots) {
          const std::size_t from = values ? offered.layout.v_tile(1 + layer, head, slot)
                                          : offered.layout.k_tile(1 + layer, head, slot);
          sum.add(std::span(offered.bytes).subspan(from, offered.layout.tile_bytes()));
        }
      }
    }
    ASSERT_TRUE(offered.take(at, at.header(layer), slots, sum.value()).ok());
  }
  EXPECT_TRUE(at.landing->complete());
  const KvLayout& layout = at.pools.views[0].layout;
  const std::int32_t to[] = {5, 6, 1};
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    for (std::int32_t head = 0; head < 3; ++head) {
      for (std::size_t i = 0; i < 3; ++i) {
        const std::byte* from = offered.bytes.data() + offered.layout.v_tile(1 + layer, 1 + head, slots[i]);
        EXPECT_TRUE(
            std::equal(from, from + layout.tile_bytes(),
                       at.bytes.begin() + static_cast<std::ptrdiff_t>(layout.v_tile(layer, head, to[i]))));
      }
    }
  }
}

TEST(PageLanding, WhatIsNotOfferedIsNotRead) {
  const auto refused = [](const std::vector<std::int32_t>& slots, std::uint64_t sum, ErrorCode code,
                          auto&& change) {
    Landing at;
    Offered offered;
    change(offered);
    EXPECT_EQ(offered.take(at, at.header(), slots, sum).code(), code);
    EXPECT_FALSE(at.landing->complete());
  };
  const auto nothing = [](Offered&) {};
  refused({17, 18, 20}, 0, ErrorCode::kCorrupt, nothing);
  refused({17, -1, 18}, 0, ErrorCode::kCorrupt, nothing);
  refused({17, 18}, 0, ErrorCode::kCorrupt, nothing);
  refused({17, 18, 19}, 1, ErrorCode::kCorrupt, nothing);  // another checksum
  refused({17, 18, 19}, 0, ErrorCode::kCorrupt,
          [](Offered& offered) { offered.direct.pools[0].part.first_layer = 4; });
  refused({17, 18, 19}, 0, ErrorCode::kUnavailable,
          [](Offered& offered) { offered.direct.pools[0].base = 64; });
}

TEST(PeerMemory, AMarkIsFoundInItsProcessAlone) {
  const MemoryMark mark = own_memory_mark();
  EXPECT_TRUE(finds(PeerMemory(::getpid()), mark));
  EXPECT_FALSE(finds(PeerMemory(::getpid()), {mark.address, mark.value + 1}));
  EXPECT_FALSE(finds(PeerMemory(1 << 29), mark));
}

TEST(RoomLink, ASilentPeerIsGone) {
  Landing at;
  const TimePoint began = now();
  const auto frame = at.ours->await_frame();
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code(), ErrorCode::kUnavailable);
  EXPECT_LT(seconds_between(began, now()), 2.0);
}

TEST(RoomLink, AnAbortSaysWhy) {
  Landing at;
  at.theirs->abort("the cable was cut");
  const auto frame = at.ours->await_frame();
  ASSERT_TRUE(frame.ok() && *frame);
  EXPECT_EQ((*frame)->type, MessageType::kAbort);
  const auto body = at.ours->receive_body(**frame, 4096);
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(*wire::decode_sentence(*body), "the cable was cut");
  EXPECT_FALSE(at.ours->await_frame().ok());
}

}  // namespace
}  // namespace shoal::handover
