#include "comm/async_collectives.h"

#include <algorithm>
#include <utility>

namespace shoal::comm {

struct AsyncCollectives::Pending::State {
  Purpose purpose;
  std::function<Status()> call;
  mutable std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Status status;
  Charge charge;  // all of its time as exposed
};

bool AsyncCollectives::Pending::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

Status AsyncCollectives::Pending::wait() {
  const TimePoint begin = now();
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  Charge charge = state_->charge;
  const double took = charge.exposed;
  charge.exposed = std::min(took, seconds_between(begin, now()));
  charge.hidden = took - charge.exposed;
  ledger_->charge(state_->purpose, charge);
  return state_->status;
}

AsyncCollectives::AsyncCollectives(Carrier& carrier, Group group, Ledger& ledger,
                                   Collectives::Options options)
    : carrier_(carrier),
      ledger_(ledger),
      group_(carrier, std::move(group), counted_, std::move(options)),
      thread_([this] { run(); }) {}

AsyncCollectives::~AsyncCollectives() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

AsyncCollectives::Pending AsyncCollectives::post(Purpose purpose, std::function<Status()> call) {
  auto state = std::make_shared<Pending::State>();
  state->purpose = purpose;
  state->call = std::move(call);
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(state);
  }
  changed_.notify_one();
  return {std::move(state), ledger_};
}

void AsyncCollectives::run() {
  for (;;) {
    std::shared_ptr<Pending::State> state;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !calls_.empty(); });
      if (calls_.empty()) return;
      state = std::move(calls_.front());
      calls_.pop_front();
    }
    const Charge before = counted_.totals(state->purpose);
    carrier_.set_spinning(false);
    Status status = state->call();
    carrier_.set_spinning(true);
    Charge charge = counted_.totals(state->purpose);
    charge.calls -= before.calls;
    charge.payload -= before.payload;
    for (std::size_t scope = 0; scope < kScopes; ++scope) charge.wire[scope] -= before.wire[scope];
    charge.exposed -= before.exposed;
    const std::lock_guard lock(state->mutex);
    state->status = std::move(status);
    state->charge = charge;
    state->done = true;
    state->changed.notify_all();
  }
}

AsyncCollectives::Pending AsyncCollectives::all_reduce(Purpose purpose, std::span<float> values) {
  return post(purpose, [=, this] { return group_.all_reduce(purpose, values); });
}

AsyncCollectives::Pending AsyncCollectives::reduce_scatter(Purpose purpose,
                                                           std::span<const std::int64_t> counts,
                                                           std::span<const float> values,
                                                           std::span<float> out) {
  return post(purpose, [=, this] { return group_.reduce_scatter(purpose, counts, values, out); });
}

AsyncCollectives::Pending AsyncCollectives::all_gather(Purpose purpose, std::span<const std::byte> mine,
                                                       std::span<const std::span<std::byte>> all) {
  return post(purpose, [=, this] { return group_.all_gather(purpose, mine, all); });
}

AsyncCollectives::Pending AsyncCollectives::all_to_all(Purpose purpose,
                                                       std::span<const std::span<const std::byte>> out,
                                                       std::span<const std::span<std::byte>> in) {
  return post(purpose, [=, this] { return group_.all_to_all(purpose, out, in); });
}

AsyncCollectives::Pending AsyncCollectives::broadcast(Purpose purpose, std::int32_t root,
                                                      std::span<std::byte> bytes) {
  return post(purpose, [=, this] { return group_.broadcast(purpose, root, bytes); });
}

AsyncCollectives::Pending AsyncCollectives::send(Purpose purpose, std::int32_t peer,
                                                 std::span<const std::byte> bytes) {
  return post(purpose, [=, this] { return group_.send(purpose, peer, bytes); });
}

AsyncCollectives::Pending AsyncCollectives::receive(Purpose purpose, std::int32_t peer,
                                                    std::span<std::byte> bytes) {
  return post(purpose, [=, this] { return group_.receive(purpose, peer, bytes); });
}

AsyncCollectives::Pending AsyncCollectives::exchange(Purpose purpose, std::span<const Outgoing> out,
                                                     std::span<const Incoming> in, std::uint64_t calls) {
  return post(purpose, [=, this] { return group_.exchange(purpose, out, in, calls); });
}

}  // namespace shoal::comm
