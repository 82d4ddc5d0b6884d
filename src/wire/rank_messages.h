// The messages by which ranks join a worker: docs/wire.md, sections 3 and 4.
//
// Thread-safety: values and pure functions.
// Errors: decoding fails with kCorrupt where a body is not exactly its fields.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "layout/layout.h"
#include "layout/reshard.h"

namespace shoal::wire {

inline constexpr std::uint16_t kWireVersion = 1;

enum class MessageType : std::uint16_t {
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kJoin = 10,
  kAssign = 11,
  kRefuse = 12,
  kLoaded = 13,
  kStart = 14,
  kReady = 15,
  kFailed = 16,
  kBeat = 17,
  kProgress = 18,
  kTraffic = 19,
  kPlan = 20,
  kResult = 21,
  kStop = 22,
  kReset = 23,
  kWord = 24,  // of a rank service: wire/handover_messages.h
  kRoom = 30,  // and on: wire/handover_messages.h
  kAccept = 31,
  kWrite = 32,
  kCommit = 33,
  kLanded = 34,
  kAbort = 35,
  kFetch = 36,
  kOffer = 37,
  kTake = 38,
  kEnd = 39,
};

struct Join {
  std::string build;
  std::string host;
  std::int32_t rank = -1;  // -1: any
  std::int32_t cores = 1;
  std::int32_t pid = 0;
};

// Everything a rank needs to load its shard.
struct Assign {
  std::int32_t rank = 0;
  Degrees degrees;
  Epoch epoch;
  std::string model;
  std::string kv_dtype;      // "bf16", "f32"
  std::string activations;   // "auto", "f32"
  std::string weights;       // "" as in the files, else a type's name
  std::string packed_cache;  // a folder on the rank's host; "": none
  bool strict = false;
  std::int32_t threads = 0;  // 0: those it has
  std::int32_t max_slots = 0;
  bool spin = false;                       // the host has a core for every thread of its ranks
  std::vector<std::int32_t> stage_layers;  // of each stage; empty: by balance
  std::vector<std::int32_t> tp_split;      // shares of the tensor ranks; empty: even
  std::string balance;                     // "prefill", "decode", "mix"
  std::string sums;                        // what sums travel as: "f32", "bf16"
  bool network = false;                    // ranks may be on other hosts: the carrier listens for them
  std::string listen;                      // on which address; empty: the one that the head was reached from
  std::string role;                        // of the worker: "both", "prefill", "decode"
  std::string handover_host;        // where other workers may call; empty: as the head was reached from
  std::uint16_t handover_port = 0;  // 0: a free one
  std::string fabric;  // the head's interface of a network that ranks meet on with UCX; empty: none
};

struct Loaded {
  Epoch epoch;
  std::string fingerprint;
  std::vector<std::string> kv_ids;  // of each KV group: type, head size and window; not heads, which TP cuts
  std::string isa;
  std::uint64_t page_bytes = 0;  // of one page in every group
  std::uint64_t available = 0;   // bytes
  // Of what the system counts as available: this rank's weights, mapped from a packed cache.
  std::uint64_t mapped_weights = 0;
  std::int32_t threads = 0;
  // Where its carrier listens, HOST:PORT; no host: at the head's. Empty: nowhere.
  std::string endpoint;
  std::vector<KvPart> parts;  // of each KV group, what this rank holds
};

struct Start {
  std::int64_t pages = 0;
  std::int32_t offload_places = 0;  // pages of each group that the rank's offload buffer holds
  std::int32_t lanes = 1;
  std::string meeting;  // where the shared memory is handed out: a name, to which each host adds its number
  std::uint64_t ring_bytes = 0;
  std::vector<std::string> hosts;      // by rank
  std::vector<std::string> endpoints;  // by rank, as in Loaded
  PlanNumber first_plan{1};
};

struct Failed {
  Epoch epoch;
  std::string sentence;
};

// What a rank has moved since it was started, by purpose (comm/ledger.h).
struct TrafficLine {
  std::uint8_t purpose = 0;
  std::uint64_t calls = 0;
  std::uint64_t payload = 0;  // bytes
  std::uint64_t host = 0;     // bytes on the wire, by scope
  std::uint64_t network = 0;
  std::uint64_t hidden_ns = 0;
  std::uint64_t exposed_ns = 0;
};
struct Traffic {
  std::vector<TrafficLine> lines;
};

std::vector<std::byte> encode(const Join& join);
std::vector<std::byte> encode(const Assign& assign);
std::vector<std::byte> encode(const Loaded& loaded);
std::vector<std::byte> encode(const Start& start);
std::vector<std::byte> encode(const Failed& failed);
std::vector<std::byte> encode(const Traffic& traffic);
// Of ready and reset.
std::vector<std::byte> encode_progress(std::uint32_t thousandths);
std::vector<std::byte> encode_epoch(Epoch epoch);
// Of refuse.
std::vector<std::byte> encode_sentence(std::string_view sentence);

Expected<Join> decode_join(std::span<const std::byte> body);
Expected<Assign> decode_assign(std::span<const std::byte> body);
Expected<Loaded> decode_loaded(std::span<const std::byte> body);
Expected<Start> decode_start(std::span<const std::byte> body);
Expected<Failed> decode_failed(std::span<const std::byte> body);
Expected<Traffic> decode_traffic(std::span<const std::byte> body);
Expected<std::uint32_t> decode_progress(std::span<const std::byte> body);
Expected<Epoch> decode_epoch(std::span<const std::byte> body);
Expected<std::string> decode_sentence(std::span<const std::byte> body);

}  // namespace shoal::wire
