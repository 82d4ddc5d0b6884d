// What the engine thread knows about a request and about each of its choices while they live.
//
// Thread-safety: none; the engine thread owns them.
// Invariants:
//   1. tokens = prompt, then the output known so far. `pending` samples are in flight and not in tokens yet.
//   2. computed <= planned <= tokens.size() + pending: positions answered, and positions answered or in
//      flight.
//   3. A sequence outlives its request while plans with its work are in flight (docs/execution.md P2, G3).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "engine/handover_leg.h"
#include "engine/output_stream.h"
#include "engine/request.h"
#include "kv/kv_cache.h"
#include "kv/offload_table.h"
#include "layout/context_partition.h"
#include "layout/coordinate_set.h"
#include "policy/retraction.h"

namespace shoal::engine {

enum class SequenceState : std::uint8_t {
  kHeldBack,  // a further choice, until the first has computed the prompt
  kUncalled,  // departs, and the worker that goes on has not called: holds nothing
  kQueued,
  kRunning,    // admitted: has its place among the running, pages, maybe work in flight
  kAway,       // its bytes are on their way to or from another worker: holds pages, has no work
  kPreempted,  // gives its pages back once nothing of it is in flight, then queues again
  kEnded,      // its request is done with it; goes once nothing of it is in flight
};

struct RequestRecord;

struct Sequence {
  RequestRecord* request = nullptr;  // null once ended
  std::uint64_t arrival = 0;         // order among all sequences
  std::uint32_t choice = 0;
  SequenceState state = SequenceState::kHeldBack;
  std::int32_t passed = 0;  // times that later ones were admitted first
  bool preempted = false;   // gave way once: nobody passes it in the queue
  policy::Retraction comes_back = policy::Retraction::kRecompute;  // once it gave way
  std::optional<kv::StowedPages> stowed;                           // while it waits to come back
  TimePoint arrived{};
  TimePoint last_token{};

  std::string resumed_text;  // text of resumed output that is still to be sent
  std::int32_t resumed = 0;  // output tokens that it began with

  std::vector<TokenId> tokens;
  std::int32_t prompt_tokens = 0;
  std::int32_t max_tokens = 0;
  std::int32_t pending = 0;
  std::int64_t planned = 0;
  std::int64_t computed = 0;
  std::int32_t in_flight = 0;   // plans with work of it
  std::uint64_t last_plan = 0;  // the last one with work of it, as its home's plans count

  ContextLanes lanes;     // the coordinates that compute its prompt
  std::int32_t home = 0;  // the one that samples it: where its last computed token of a prompt is
  CoordinateSet touches;  // of the plan being composed: what its work reads and writes lies there
  SequenceSlot slot{-1};  // in the ranks' tables, while open there
  kv::PrefixKey key;
  kv::SequencePages pages;
  std::uint64_t tree_version = 0;        // when its prefix was matched
  std::vector<kv::NewPage> to_grant;     // not yet in a plan
  std::vector<std::int32_t> to_release;  // by group: first page kept, where not yet in a plan; else -1
  std::unique_ptr<OutputStream> stream;

  // Where another worker answers, or computes the prompt (engine/handover_leg.h); null elsewhere, and once
  // that is done.
  std::shared_ptr<Departure> departure;
  std::shared_ptr<Arrival> arrival_leg;
  bool called = false;  // by the worker that the departure is for
  FinishReason departs_with = FinishReason::kLength;
  std::string matched_stop;

  std::int32_t output_tokens() const { return static_cast<std::int32_t>(tokens.size()) - prompt_tokens; }
  bool open_on_ranks() const { return slot.value >= 0; }
  // Everything known is computed or in flight, and the next token follows from what was sampled last.
  bool decoding() const {
    return output_tokens() + pending > 0 && planned == static_cast<std::int64_t>(tokens.size()) + pending - 1;
  }
  // Tokens known but neither computed nor in flight.
  std::int64_t remaining() const { return static_cast<std::int64_t>(tokens.size()) - planned; }
};

struct RequestRecord {
  RequestId id;
  GenerateRequest request;
  OutputSink sink;
  std::vector<Sequence*> choices;  // null once ended
  std::int32_t open_choices = 0;
  bool prompt_done = false;  // the first choice's prompt is computed
  bool admitted = false;
  std::int32_t losses = 0;  // of ranks, while it was running
  bool first_token_out = false;
  TimePoint admitted_at{};
  // Gathered while the prompt is computed; sent with the first event.
  std::vector<PromptLogprobs> prompt_logprobs;
  bool prompt_logprobs_done = true;
  Usage usage;
};

}  // namespace shoal::engine
