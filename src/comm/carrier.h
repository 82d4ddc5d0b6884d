// Moves bytes between the ranks of one worker. Messages have no names: between two ranks they arrive in the
// order sent, and both sides know from the step plan what comes next and how long it is (docs/wire.md,
// section 6).
//
// Thread-safety: transfer() and shared_sum() belong to one thread, the rank's executor; abort() may be called
//   from any thread.
// Ownership: borrows the bytes for the length of a call.
// Invariants:
//   1. The receiver chooses where bytes go; a message of another length than it posted is an error.
//   2. Every wait ends: by its deadline, by abort(), or by the peer's end.
//   3. What has failed once stays failed: later calls return the first error at once.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"
#include "layout/layout.h"

namespace shoal::comm {

class SharedSum;

struct Outgoing {
  std::int32_t peer = 0;
  std::span<const std::byte> bytes;
};

struct Incoming {
  std::int32_t peer = 0;
  std::span<std::byte> bytes;
};

// Whether message i waits for the one before it, of the same peer. progress: of each message, with a `done`.
template <typename Message, typename Progress>
bool waits_its_turn(std::span<const Message> messages, const std::vector<Progress>& progress, std::size_t i) {
  return i > 0 && messages[i - 1].peer == messages[i].peer && !progress[i - 1].done;
}

class Carrier {
 public:
  virtual ~Carrier() = default;

  virtual std::int32_t rank() const = 0;
  virtual std::int32_t ranks() const = 0;
  // "shm", "tcp": for reports.
  virtual const char* name() const = 0;

  // Moves all of them at once: none waits for another, so that ranks that send to each other in one call
  // never wait in a ring. None to oneself; several for one peer stand side by side, in their order. On return
  // what went out may be overwritten (it may not have arrived) and what comes in has arrived. Empty messages
  // are messages.
  virtual Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in,
                          TimePoint deadline) = 0;

  // Bytes that may be on their way to a peer which does not receive yet: transfer() of so many (8 more for
  // each message) returns, whatever that one does, as soon as it has received what was sent to it before.
  virtual std::size_t buffer_bytes(std::int32_t peer) const {
    (void)peer;
    return 0;
  }

  // Whether a wait may at first keep a core busy, so that it ends the sooner. Not where this process's other
  // threads compute meanwhile. True until set. Belongs to whichever thread calls transfer() at the time:
  // AsyncCollectives' own sets it for its calls and back to true, while nobody else moves anything.
  virtual void set_spinning(bool spinning) { (void)spinning; }

  // Every wait of this rank, and of the others as soon as they see it, ends with kUnavailable and this
  // reason.
  virtual void abort(const std::string& reason) = 0;

  // Memory of this rank that the other ranks of its host see; empty where there is none. What a sum finds
  // here it adds up where it lies. As large on every rank; whether a sum's values lie here is alike on all.
  virtual std::span<std::byte> arena() { return {}; }

  // Sums through memory that all ranks of the group see; null where they have none.
  virtual SharedSum* shared_sum(const Group& group) = 0;
};

}  // namespace shoal::comm
