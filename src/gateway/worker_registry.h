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
  Reservation(WorkerRegistry& registry, WorkerPtr worker, double tokens, double pages);

  WorkerRegistry* registry_ = nullptr;
  WorkerPtr worker_;
  double tokens_ = 0;
  double pages_ = 0;
  std::uint64_t generation_ = 0;  // of the worker's report when it was made
};

// Workers that serve a model, up or not, by the part of a request they take; indexes, each list in order.
struct ModelWorkers {
  std::vector<std::uint32_t> all;
  std::vector<std::uint32_t> whole;
  std::vector<std::uint32_t> prefill;
  std::vector<std::uint32_t> decode;
};

// How a worker is added.
struct WorkerName {
  policy::WorkerRole role = policy::WorkerRole::kBoth;  // kBoth: it says itself
  std::uint16_t bootstrap_port = 0;                     // of a prefill worker; 0: it says itself
};

class WorkerRegistry {
 public:
  explicit WorkerRegistry(policy::Breaker::Options breaker = {}) : breaker_(breaker) {}

  // kInvalidArgument where it is no URL, or has another role already; one that is known is given back as it
  // is, and stays if it was to leave.
  Expected<WorkerPtr> add(std::string_view url, WorkerSource source, const WorkerName& as = {});
  // Takes no new requests and goes when the last one there has ended.
  void leave(const WorkerPtr& worker);
  // Goes now; its users go on elsewhere.
  void remove(const WorkerPtr& worker, const std::string& why);
  // This process of a worker that registers itself is not wanted: its next report would bring it back. A
  // successor is another process; so is one that an operator adds by hand.
  void dismiss(const WorkerPtr& worker);
  bool is_dismissed(std::string_view url, const std::string& instance) const;
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

  // A request there found nobody: it takes no further ones before it speaks again.
  void mistrust(const WorkerPtr& worker, const Status& why);

  // How a request there went, for the breaker.
  void succeeded(const WorkerPtr& worker);
  void failed(const WorkerPtr& worker, TimePoint now);
  // A request has left the worker and says nothing of it: a trial of its breaker is free again.
  void forgotten(const WorkerPtr& worker);
  void learn_prefill(const WorkerPtr& worker, double tokens, double seconds);

  // pages: of KV that the request will hold there.
  Reservation reserve(const WorkerPtr& worker, double uncached_tokens, double pages, TimePoint now);

  // Breakers that open with time, and workers that wait to leave.
  void tick(TimePoint now);

  std::span<const policy::WorkerView> views() const { return views_; }
  const std::vector<WorkerPtr>& workers() const { return workers_; }
  const WorkerPtr& at(std::uint32_t index) const { return workers_[index]; }
  // Of every model where model is empty.
  const ModelWorkers& serving(const std::string& model);
  // Whether anybody takes whole requests, alone or as a pair.
  bool answers() const;
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
  void set_role(const Worker& worker, policy::WorkerRole role);

  std::uint64_t next_id_ = 1;
  std::unordered_map<std::string, ModelWorkers> by_model_;  // "" for all
  bool by_model_stale_ = true;
  std::map<std::string, std::string> dismissed_;  // the instance, by name
};

}  // namespace shoal::gateway
