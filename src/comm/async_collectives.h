// Collectives that run while their caller computes: each call returns at once, and the values are there after
// wait(). What wait() does not wait for is the time that the ledger calls hidden.
//
// A thread of its own makes the calls, one after the other in the order given: the carrier belongs to it, and
// between two ranks messages have no names. So every rank of the group gives the same calls in the same
// order, and nobody else uses the carrier in between.
//
// Thread-safety: none; belongs to one thread, which need not be the one that made it.
// Ownership: borrows carrier, ledger and all that calls are given, until their wait() has returned; owns its
//   thread, which ends with the destructor after what has been given. That ends by its deadlines, or at once
//   where the carrier is aborted.
// Errors: wait() gives that of its call. After one the group is of no use any more, as with Collectives.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/collectives.h"

namespace shoal::comm {

class AsyncCollectives {
 public:
  AsyncCollectives(Carrier& carrier, Group group, Ledger& ledger, Collectives::Options options);
  ~AsyncCollectives();
  AsyncCollectives(const AsyncCollectives&) = delete;
  AsyncCollectives& operator=(const AsyncCollectives&) = delete;

  // A call on its way. wait() at most once; one that is never waited for is not charged.
  class Pending {
   public:
    Status wait();
    bool done() const;

   private:
    friend class AsyncCollectives;
    struct State;
    Pending(std::shared_ptr<State> state, Ledger& ledger) : state_(std::move(state)), ledger_(&ledger) {}
    std::shared_ptr<State> state_;
    Ledger* ledger_;
  };

  // As in Collectives.
  Pending all_reduce(Purpose purpose, std::span<float> values);
  Pending reduce_scatter(Purpose purpose, std::span<const std::int64_t> counts, std::span<const float> values,
                         std::span<float> out);
  Pending all_gather(Purpose purpose, std::span<const std::byte> mine,
                     std::span<const std::span<std::byte>> all);
  Pending all_to_all(Purpose purpose, std::span<const std::span<const std::byte>> out,
                     std::span<const std::span<std::byte>> in);
  Pending broadcast(Purpose purpose, std::int32_t root, std::span<std::byte> bytes);
  Pending send(Purpose purpose, std::int32_t peer, std::span<const std::byte> bytes);
  Pending receive(Purpose purpose, std::int32_t peer, std::span<std::byte> bytes);
  Pending exchange(Purpose purpose, std::span<const Outgoing> out, std::span<const Incoming> in,
                   std::uint64_t calls);

 private:
  Pending post(Purpose purpose, std::function<Status()> call);
  void run();

  Carrier& carrier_;
  Ledger& ledger_;
  Ledger counted_;  // by the thread; what a call adds is its charge
  Collectives group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Pending::State>> calls_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace shoal::comm
