// Lets any bytes come to a rank of a decode worker as what a prefill worker's rank sends: frames of writes,
// of pages themselves or of where they are to be read.
//
// The first byte says which: 0 writes alone; else an offer of so many bytes comes first, and the pages it
// names are read from a buffer here. Beyond crashes it checks that bytes are placed in pages that were asked
// for and nowhere else, and that everything counts as landed when every part has come once, not before.

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "handover/page_landing.h"
#include "handover/terms.h"

namespace {

using namespace shoal;
using wire::MessageType;

void require(bool promise) {
  if (!promise) std::abort();
}

constexpr std::byte kUntouched{0xee};
constexpr std::uint64_t kRoom = 7;
// make_corpus_landing.py writes the same pages' table into its writes.
const std::vector<wire::RoomPage> kAsked = {
    {0, 1, 3, 1}, {0, 2, 4, 1}, {0, 4, 0, 2}, {1, 3, 1, 1}, {1, 4, 3, 5}};
constexpr std::uint64_t kTable = 0x95a37ba4d92b5205;
// What a socket pair takes without a reader.
constexpr std::size_t kMostBytes = std::size_t{64} << 10;

// Layers 1 and 2 of group 0 with heads 0 and 1, layer 0 of group 1 with head 2; 6 and 4 slots.
class Pools {
 public:
  Pools() {
    const KvLayout full{2, 2, 2, 6};
    const KvLayout window{1, 1, 2, 4};
    first_.assign(full.pool_bytes(), kUntouched);
    second_.assign(window.pool_bytes(), kUntouched);
    pools_ = {{{first_.data(), full}, {second_.data(), window}}, {{1, 2, 0, 2}, {0, 1, 2, 1}}, {0, 64}};
  }
  const handover::RankPools& get() const { return pools_; }

  bool only_asked_are_touched() const {
    std::set<std::pair<std::size_t, std::int32_t>> asked;
    for (const wire::RoomPage& page : kAsked) asked.emplace(static_cast<std::size_t>(page.group), page.slot);
    for (std::size_t g = 0; g < pools_.views.size(); ++g) {
      const KvView& pool = pools_.views[g];
      const std::size_t tiles = pool.layout.pool_bytes() / pool.layout.tile_bytes();
      for (std::size_t i = 0; i < tiles; ++i) {
        // Slots run fastest.
        const auto slot = static_cast<std::int32_t>(i % static_cast<std::size_t>(pool.layout.slots));
        const std::span tile(pool.base + i * pool.layout.tile_bytes(), pool.layout.tile_bytes());
        if (!asked.contains({g, slot}) &&
            !std::ranges::all_of(tile, [](std::byte each) { return each == kUntouched; }))
          return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::byte> first_, second_;
  handover::RankPools pools_;
};

std::optional<handover::PageLanding::Direct> offered(std::span<const std::byte> body,
                                                     std::span<std::byte> there) {
  auto offer = wire::decode_offer(body);
  // As the rank's port does.
  if (!offer.ok() || offer->pools.size() != 2) return std::nullopt;
  for (auto& pool : offer->pools) pool.base = reinterpret_cast<std::uint64_t>(there.data());
  return handover::PageLanding::Direct{handover::PeerMemory(::getpid()), std::move(offer->pools)};
}

void land(std::span<const std::byte> frames, const handover::PageLanding::Direct* direct) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  comm::Socket peer(ends[1]);
  const auto link = *handover::RoomLink::make(comm::Socket(ends[0]));
  frames = frames.first(std::min(frames.size(), kMostBytes));
  const auto sent = peer.send_some(frames);
  require(frames.empty() || (sent.ok() && *sent == frames.size()));
  ::shutdown(peer.fd(), SHUT_WR);

  const Pools pools;
  handover::PageLanding landing(pools.get(), kRoom, kAsked);
  require(landing.table() == kTable);
  handover::PageGuard guard;
  bool last = false;
  while (!landing.complete()) {
    const auto frame = link->await_frame();
    if (!frame.ok() || !*frame || (*frame)->type != MessageType::kWrite) break;
    const auto taken = landing.take(*link, **frame, guard, direct);
    if (!taken.ok()) {
      require(!taken.error().message().empty());
      break;
    }
    last = *taken;
  }
  require(last == landing.complete());
  require(pools.only_asked_are_touched());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  const auto offer = static_cast<std::size_t>(bytes.front());
  bytes = bytes.subspan(1);
  if (offer == 0) {
    land(bytes, nullptr);
    return 0;
  }
  if (offer > bytes.size()) return 0;
  static std::vector<std::byte> there(std::size_t{64} << 10, std::byte{0x11});
  const auto direct = offered(bytes.first(offer), there);
  if (direct) land(bytes.subspan(offer), &*direct);
  return 0;
}
