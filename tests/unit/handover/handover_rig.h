// Two workers, one that prefills and one that decodes, over real connections.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "../engine/engine_rig.h"
#include "../engine/thread_launcher.h"
#include "handover/bootstrap.h"
#include "handover/rank_ports.h"
#include "handover/receiver.h"
#include "handover/sender.h"

namespace shoal::handover {

using engine::Client;
using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;
using engine::prompt_of;
using engine::request_of;
using engine::stories;
using engine::strict_options;

inline std::shared_ptr<const wire::ClusterToken> token_of(const std::string& secret) {
  auto token = wire::ClusterToken::parse(secret, "a test");
  EXPECT_TRUE(token.ok());
  return std::make_shared<const wire::ClusterToken>(*std::move(token));
}

// A worker of however many ranks, its other ranks threads of this process.
inline std::unique_ptr<Engine> start_worker(EngineOptions options, const std::shared_ptr<RankPorts>& ports,
                                            const std::string& role) {
  const auto launcher = std::make_shared<engine::ThreadLauncher>();
  launcher->serve_with([token = ports->token()] { return std::make_shared<RankPort>(token); });
  options.launcher = launcher;
  options.build = "test";
  ports->equip(options, role, {"127.0.0.1", 0});
  return engine::start(std::move(options));
}

struct Pair {
  explicit Pair(EngineOptions prefill_options = strict_options(),
                EngineOptions decode_options = strict_options(),
                const std::string& decode_token = "0123456789abcdef", const std::string& decode_build = "1",
                bool direct = true) {
    start_prefill(std::move(prefill_options));
    start_decode(std::move(decode_options), decode_token, decode_build, direct);
  }
  ~Pair() {
    receiver.reset();
    sender.reset();
  }

  void start_prefill(EngineOptions options) {
    sender.reset();
    const auto ports = std::make_shared<RankPorts>(token_of("0123456789abcdef"));
    prefill = start_worker(std::move(options), ports, "prefill");
    ASSERT_NE(prefill, nullptr);
    Sender::Options sends;
    sends.build = "1";
    sends.checksums = Checksums::kFull;
    auto started = Sender::start(*prefill, ports, sends);
    ASSERT_TRUE(started.ok()) << started.status().message();
    sender = *std::move(started);
    BootstrapPort::Options answers;
    answers.port = 0;
    answers.layout = prefill->kv_pools().layout;
    answers.endpoint = [ports](std::int32_t rank) { return ports->endpoint(rank); };
    auto port = BootstrapPort::start(answers);
    ASSERT_TRUE(port.ok()) << port.status().message();
    bootstrap = *std::move(port);
  }
  void start_decode(EngineOptions options, const std::string& token = "0123456789abcdef",
                    const std::string& build = "1", bool direct = true) {
    receiver.reset();
    const auto ports = std::make_shared<RankPorts>(token_of(token));
    decode = start_worker(std::move(options), ports, "decode");
    ASSERT_NE(decode, nullptr);
    receiver = std::make_unique<Receiver>(*decode, ports, Receiver::Options{build, Checksums::kFull, direct});
  }

  GenerateRequest departing(GenerateRequest request, RoomId room) {
    for (std::int32_t choice = 0; choice < request.n; ++choice) {
      auto leg = sender->depart(room + static_cast<RoomId>(choice), request.prompt);
      EXPECT_TRUE(leg.ok()) << leg.status().message();
      request.departures.push_back(*leg);
    }
    return request;
  }
  GenerateRequest arriving(GenerateRequest request, RoomId room) {
    for (std::int32_t choice = 0; choice < request.n; ++choice) {
      auto leg = receiver->arrive(room + static_cast<RoomId>(choice), {"127.0.0.1", bootstrap->port()});
      EXPECT_TRUE(leg.ok()) << leg.status().message();
      request.arrivals.push_back(*leg);
    }
    return request;
  }
  // Both legs at once.
  void ask(const GenerateRequest& request, Client& first, Client& answer) {
    const RoomId room = next_room;
    next_room += 100;
    ASSERT_TRUE(prefill->submit(departing(request, room), first.sink()).ok());
    ASSERT_TRUE(decode->submit(arriving(request, room), answer.sink()).ok());
  }
  void expect_nothing_held() {
    engine::expect_pages_back(*prefill);
    engine::expect_pages_back(*decode);
    for (const RoomStats& stats : {sender->stats(), receiver->stats()}) {
      for (const std::size_t open : stats.open) EXPECT_EQ(open, 0U);
    }
  }
  // Of all ranks, as the head has heard of them: the others tell with their beats.
  std::uint64_t kv_bytes() const {
    const auto kv = static_cast<std::size_t>(comm::Purpose::kKv);
    const auto ranks = prefill->worker().ranks;
    if (ranks.empty()) return prefill->ledger().totals(comm::Purpose::kKv).payload;
    std::uint64_t bytes = 0;
    for (const engine::RankReport& rank : ranks) bytes += rank.traffic[kv].payload;
    return bytes;
  }

  std::unique_ptr<Engine> prefill;
  std::unique_ptr<Engine> decode;
  std::unique_ptr<Sender> sender;
  std::unique_ptr<BootstrapPort> bootstrap;
  std::unique_ptr<Receiver> receiver;
  RoomId next_room = 1000;
};

inline void expect_same(const Client& answer, const Client& expected, std::int32_t n) {
  for (std::int32_t choice = 0; choice < n; ++choice) {
    SCOPED_TRACE(choice);
    EXPECT_EQ(answer.ids(choice), expected.ids(choice));
    EXPECT_EQ(answer.text.at(choice), expected.text.at(choice));
    EXPECT_EQ(answer.finish.at(choice), expected.finish.at(choice));
    const auto& ours = answer.tokens.at(choice);
    const auto& theirs = expected.tokens.at(choice);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].logprob, theirs[i].logprob) << "token " << i;
      ASSERT_EQ(ours[i].top.size(), theirs[i].top.size());
      for (std::size_t k = 0; k < ours[i].top.size(); ++k)
        EXPECT_EQ(ours[i].top[k].logprob, theirs[i].top[k].logprob);
    }
  }
  EXPECT_EQ(answer.usage.prompt_tokens, expected.usage.prompt_tokens);
  EXPECT_EQ(answer.usage.completion_tokens, expected.usage.completion_tokens);
}

inline bool eventually(const std::function<bool()>& holds, std::chrono::milliseconds most) {
  const TimePoint end = now() + most;
  while (!holds() && now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return holds();
}

inline std::int64_t held(const Engine& engine) {
  std::int64_t pages = 0;
  for (const auto& kv : engine.stats().kv) pages += kv.held + kv.fenced;
  return pages;
}

// Bytes of a page of the model on all ranks that hold one, duplicated heads on each.
inline std::uint64_t page_bytes(const Engine& engine, std::size_t group) {
  const engine::KvPools& pools = engine.kv_pools();
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < pools.parts.size(); ++rank) {
    if (pools.layout.coordinate(static_cast<std::int32_t>(rank)).cp != 0) continue;
    const KvPart& part = pools.parts[rank][group];
    bytes += 2 * pools.views[group].layout.tile_bytes() * static_cast<std::uint64_t>(part.layers) *
             static_cast<std::uint64_t>(part.heads);
  }
  return bytes;
}
inline std::uint64_t page_bytes(const Engine& engine) {
  std::uint64_t bytes = 0;
  for (std::size_t g = 0; g < engine.kv_pools().groups.size(); ++g) bytes += page_bytes(engine, g);
  return bytes;
}

}  // namespace shoal::handover
