// Feeds any bytes to the decoders of the messages between processes (docs/wire.md), and what they accept to
// what acts on it first: the plan of who fetches what from whom, and the check of what is asked of a rank.
//
// The first byte says which message the rest is. Beyond crashes it checks W2: a body is exactly its fields,
// so that what was decoded encodes to the same bytes; and that plans and requests that pass name only what is
// there, each thing once.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "handover/landing_plan.h"
#include "handover/page_push.h"
#include "handover/rank_room.h"
#include "handover/terms.h"
#include "wire/handover_messages.h"
#include "wire/rank_messages.h"
#include "wire/step_plan_codec.h"

namespace {

using namespace shoal;
using Body = std::span<const std::byte>;

void require(bool promise) {
  if (!promise) std::abort();
}

void require_same(const std::vector<std::byte>& again, Body body) {
  require(std::ranges::equal(again, body));
}

void check_error(const Status& status) {
  require(status.code() == ErrorCode::kCorrupt);
  require(!status.message().empty() && status.message().find('\n') == std::string::npos);
}

template <typename Message, Expected<Message> (*decode)(Body)>
std::optional<Message> decoded(Body body) {
  auto message = decode(body);
  if (!message.ok()) {
    check_error(message.error());
    return std::nullopt;
  }
  if constexpr (std::is_same_v<Message, std::string>) {
    require_same(wire::encode_sentence(*message), body);
  } else if constexpr (std::is_same_v<Message, Epoch>) {
    require_same(wire::encode_epoch(*message), body);
  } else if constexpr (std::is_same_v<Message, std::uint32_t>) {
    require_same(wire::encode_progress(*message), body);
  } else {
    require_same(wire::encode(*message), body);
  }
  return *std::move(message);
}

template <typename Message, Expected<Message> (*decode)(Body)>
void only_decoded(Body body) {
  (void)decoded<Message, decode>(body);
}

void room(Body body) {
  const auto asked = decoded<wire::Room, wire::decode_room>(body);
  if (!asked) return;
  require(asked->terms.checksum <= 2);
  const wire::HandoverTerms ours{"b", "f", {"v1"}, true, "avx2", 1};
  const Status status = handover::check_terms(ours, asked->terms);
  require(status.ok() || !status.message().empty());
}

// A decode worker of tp 2 and cp 2 with two KV groups, and pages that it lacks on its first coordinate.
engine::KvPools decode_pools() {
  engine::KvPools pools;
  pools.layout = *Layout::make({.tp = 2, .cp = 2});
  pools.groups.resize(2);
  for (int coordinate = 0; coordinate < 2; ++coordinate) {
    pools.parts.push_back({{0, 3, 0, 2}, {0, 2, 0, 1}});
    pools.parts.push_back({{0, 3, 2, 2}, {0, 2, 1, 1}});
  }
  return pools;
}

void accept(Body body) {
  const auto prefill = decoded<wire::Accept, wire::decode_accept>(body);
  if (!prefill) return;
  static const engine::KvPools pools = decode_pools();
  static const std::vector<kv::NewPage> lacking = {{0, 1, {0, 5, 1}}, {1, 1, {1, 2, 7}}, {0, 0, {0, 4, 2}}};
  const auto words = handover::landing_plan(pools, lacking, *prefill, "host");
  if (!words.ok()) return require(!words.error().message().empty());
  std::set<std::int32_t> coordinates;
  for (const wire::SourceRank& rank : prefill->ranks) coordinates.insert(rank.coordinate);
  require(words->size() == pools.parts.size());
  for (std::size_t rank = 0; rank < words->size(); ++rank) {
    // Of each group, layer and head of this rank: how many send it.
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::size_t> sent;
    for (const auto& source : (*words)[rank].sources) {
      for (const wire::GroupPart& each : source.parts) {
        for (std::int32_t layer = 0; layer < each.part.layers; ++layer) {
          for (std::int32_t head = 0; head < each.part.heads; ++head)
            ++sent[{each.group, each.part.first_layer + layer, each.part.first_head + head}];
        }
      }
    }
    std::size_t wanted = 0;
    for (std::int32_t group = 0; rank < 2 && group < 2; ++group) {
      const KvPart& part = pools.parts[rank][static_cast<std::size_t>(group)];
      for (std::int32_t layer = 0; layer < part.layers; ++layer) {
        for (std::int32_t head = 0; head < part.heads; ++head, ++wanted)
          require(sent[{group, part.first_layer + layer, part.first_head + head}] == coordinates.size());
      }
    }
    require(sent.size() == wanted);
  }
}

bool inside(const KvPart& part, const KvPart& whole) {
  const std::int64_t first_layer = part.first_layer, first_head = part.first_head;
  return part.layers > 0 && part.heads > 0 && first_layer >= whole.first_layer &&
         first_layer + part.layers <= whole.first_layer + whole.layers && first_head >= whole.first_head &&
         first_head + part.heads <= whole.first_head + whole.heads;
}

void fetch(Body body) {
  const auto asked = decoded<wire::Fetch, wire::decode_fetch>(body);
  if (!asked) return;
  // A prompt of 150 tokens has 5 pages; behind the window of 64 lie those below 2.
  const handover::RankPools pools{
      {{nullptr, {2, 2, 2, 6}}, {nullptr, {1, 1, 2, 4}}}, {{1, 2, 0, 2}, {0, 1, 2, 1}}, {0, 64}};
  static const std::unique_ptr<handover::RoomLink> link = *handover::RoomLink::make(comm::Socket());
  handover::RankRoom room(asked->room);
  const auto push = handover::PagePush::make(*link, room, pools, *asked, 150, handover::Checksums::kSampled);
  if (!push.ok()) return check_error(push.error());
  for (const wire::GroupPart& each : asked->parts)
    require(each.group >= 0 && each.group < 2 &&
            inside(each.part, pools.parts[static_cast<std::size_t>(each.group)]));
  std::set<std::pair<std::int32_t, std::int32_t>> pages;
  for (const wire::RoomPage& page : asked->pages) {
    require(page.group >= 0 && page.group < 2 && page.logical < 5 &&
            page.logical >= (page.group == 0 ? 0 : 2));
    require(pages.emplace(page.group, page.logical).second);
  }
}

void commit(Body body) {
  only_decoded<wire::Commit, wire::decode_commit>(body);
  const std::vector<std::byte> sealed = handover::sealed({body.begin(), body.end()});
  const auto whole = handover::unsealed(sealed);
  require(whole.ok() && std::ranges::equal(*whole, body));
  // One whose sum happens to fit is as good as one in 2^64.
  check_error(handover::unsealed(std::span(sealed).first(sealed.size() - 1)).status());
}

void word(Body body) {
  const auto said = decoded<wire::RankWord, wire::decode_word>(body);
  if (!said) return;
  require(said->kind >= wire::RankWord::Kind::kExpect && said->kind <= wire::RankWord::Kind::kComputed);
  require(said->checksum <= 2);
}

constexpr void (*kMessages[])(Body) = {
    room,
    accept,
    only_decoded<wire::Refusal, wire::decode_refusal>,
    fetch,
    only_decoded<wire::WriteHeader, wire::decode_write>,
    only_decoded<wire::Offer, wire::decode_offer>,
    commit,
    word,
    only_decoded<std::string, wire::decode_sentence>,
    only_decoded<wire::Join, wire::decode_join>,
    only_decoded<wire::Assign, wire::decode_assign>,
    only_decoded<wire::Loaded, wire::decode_loaded>,
    only_decoded<wire::Start, wire::decode_start>,
    only_decoded<wire::Failed, wire::decode_failed>,
    only_decoded<wire::Traffic, wire::decode_traffic>,
    only_decoded<std::uint32_t, wire::decode_progress>,
    only_decoded<Epoch, wire::decode_epoch>,
    only_decoded<StepPlan, wire::decode_step_plan>,
    only_decoded<StepResult, wire::decode_step_result>,
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  kMessages[data[0] % std::size(kMessages)](std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
