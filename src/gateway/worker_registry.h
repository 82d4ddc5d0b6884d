// Which workers there are, how they are, what each has been given: the picture that decisions are made from.
//
// Thread-safety: of the gateway's loop.
// Ownership: shares the workers with the requests that run there.
// Invariants:
//   1. views()[w->index] is the worker w; indexes change only in add() and remove().
//   2. What a Reservation adds to a worker's load it takes back once, by release(), first_token() or its end.
//   3. Health never writes load, and load never health.
//   4. A worker that is lost, or removed at once, has told all its users when the call returns.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/expected.h"
#include "gateway/worker.h"
#include "policy/fleet.h"

namespace shoal::gateway {

class WorkerRegistry;

// A request's load on a worker, from the decision on.
class Reservation {
 public:
  Reservation() = default;
  ~Reservation() { release(); }
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;

  // Its prompt has been computed.
  void first_token();
  void release();

 private:
  friend class WorkerRegistry;
  Reservation(WorkerRegistry& registry, WorkerPtr worker, double tokens);

  WorkerRegistry* registry_ = nullptr;
  WorkerPtr worker_;
  double tokens_ = 0;
  std::uint64_t generation_ = 0;  // of the worker's report when it was made
};

class WorkerRegistry {
 public:
  explicit WorkerRegistry(policy::Breaker::Options breaker = {}) : breaker_(breaker) {}

  // kInvalidArgument where it is no URL; one that is known already is given back as it is, and stays if it
  // was to leave.
  Expected<WorkerPtr> add(std::string_view url, WorkerSource source);
  // Takes no new requests and goes when the last one there has ended.
  void leave(const WorkerPtr& worker);
  // Goes now; its users go on elsewhere.
  void remove(const WorkerPtr& worker, const std::string& why);
  void set_draining(const WorkerPtr& worker, bool draining);
  WorkerPtr find(std::string_view url_or_name) const;
  // Whether it is still here.
  bool holds(const WorkerPtr& worker) const {
    return worker->index < workers_.size() && workers_[worker->index] == worker;
  }

  // A worker that speaks of itself has spoken.
  void apply(const WorkerPtr& worker, wire::WorkerReport report, TimePoint now);
  // A plain engine answers, and serves these.
  void apply_plain(const WorkerPtr& worker, std::vector<std::string> models, TimePoint now);
  // It takes no requests for now. lost: those there are not to be waited for either.
  void set_down(const WorkerPtr& worker, const std::string& why, bool lost);

  // How a request there went, for the breaker.
  void succeeded(const WorkerPtr& worker);
  void failed(const WorkerPtr& worker, TimePoint now);
  // A request has left the worker and says nothing of it: a trial of its breaker is free again.
  void forgotten(const WorkerPtr& worker);
  void learn_prefill(const WorkerPtr& worker, double tokens, double seconds);

  Reservation reserve(const WorkerPtr& worker, double uncached_tokens, TimePoint now);

  // Breakers that open with time, and workers that wait to leave.
  void tick(TimePoint now);

  std::span<const policy::WorkerView> views() const { return views_; }
  const std::vector<WorkerPtr>& workers() const { return workers_; }
  const WorkerPtr& at(std::uint32_t index) const { return workers_[index]; }
  // Indexes of those that serve the model, up or not; all of them where model is empty.
  std::span<const std::uint32_t> serving(const std::string& model);
  // All models with the worker's card that names each, by name.
  std::map<std::string, WorkerPtr> models() const;

 private:
  friend class Reservation;
  void refresh(const Worker& worker, TimePoint now);
  void set_models(Worker& worker, const std::vector<std::string>& models);
  static void tell_lost(Worker& worker, const std::string& why);
  void remove_if_done(const WorkerPtr& worker);

  policy::Breaker::Options breaker_;
  std::vector<WorkerPtr> workers_;
  std::vector<policy::WorkerView> views_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> by_model_;  // "" for all
  bool by_model_stale_ = false;
};

}  // namespace shoal::gateway
