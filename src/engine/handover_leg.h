// The two legs of a request whose prompt one worker computes and whose answer another one gives, as the
// scheduler sees them: a Departure on the first, an Arrival on the second, one of each for every choice.
//
// Thread-safety: the scheduler calls them on the engine thread; they must not wait for a peer.
// Ownership: shared by the request and whoever moves the bytes.
// Invariants:
//   1. A page that was named to a leg stays held until close() has returned, or the leg has ended well.
//   2. What becomes of a leg is told once, through Engine::arrived() or Engine::handover_ended(), with the
//      request and choice that attach() gave.

#pragma once

#include <cstdint>
#include <span>

#include "core/expected.h"
#include "core/ids.h"
#include "engine/request.h"
#include "kv/kv_cache.h"

namespace shoal::engine {

// What the prefill worker says when the prompt is computed.
struct FirstToken {
  TokenOutput token;
  std::int32_t cached_tokens = 0;  // of the prompt, on the prefill worker
  bool finished = false;           // it ends the answer: no KV is needed
};

class HandoverLeg {
 public:
  virtual ~HandoverLeg() = default;
  // Once, before anything else.
  virtual void attach(RequestId request, std::int32_t choice) = 0;
  // The sequence ends here, for this reason. When it returns no byte of a page is read or written any more.
  // Nothing where the leg has ended.
  virtual void close(const Status& why) = 0;
};

class Departure : public HandoverLeg {
 public:
  // Which one: the ranks tell whoever moves the bytes of it, as they complete them (engine/rank_service.h).
  virtual std::uint64_t room() const = 0;
  // It is this leg's turn, once. Nothing is computed and no page held for it before the other worker has
  // called (Engine::handover_called()): pages there are reserved then, so that what is computed can be taken.
  virtual void await_call() = 0;
  // The prompt is computed.
  virtual void commit(FirstToken first) = 0;
};

class Arrival : public HandoverLeg {
 public:
  // Pages are reserved: `lacking` is what has to come, possibly nothing. Once.
  virtual void open(std::span<const TokenId> prompt, std::span<const kv::NewPage> lacking) = 0;
};

}  // namespace shoal::engine
