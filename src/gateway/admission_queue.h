// How many requests run at once, and who waits for a place: first come, first served.
//
// Thread-safety: of the gateway's loop.
// Ownership: owns the callbacks of those that wait.
// Invariants: a ticket is a place; it is given back once, at its end. Each enter() is called back once,
// unless
//   it is taken back by leave().

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>

#include "core/clock.h"
#include "core/expected.h"
#include "gateway/client_keys.h"

namespace shoal::gateway {

class AdmissionQueue;

class Ticket {
 public:
  Ticket() = default;
  ~Ticket() { release(); }
  Ticket(Ticket&& other) noexcept;
  Ticket& operator=(Ticket&& other) noexcept;
  void release();

 private:
  friend class AdmissionQueue;
  explicit Ticket(AdmissionQueue& queue) : queue_(&queue) {}
  AdmissionQueue* queue_ = nullptr;
};

// One of the requests of a tenant that has a limit; counts from when it came to its end.
class TenantPlace {
 public:
  TenantPlace() = default;
  ~TenantPlace();
  TenantPlace(TenantPlace&& other) noexcept;
  TenantPlace& operator=(TenantPlace&& other) noexcept;

 private:
  friend class AdmissionQueue;
  TenantPlace(AdmissionQueue& queue, std::shared_ptr<const Tenant> tenant);
  AdmissionQueue* queue_ = nullptr;
  std::shared_ptr<const Tenant> tenant_;
};

class AdmissionQueue {
 public:
  AdmissionQueue(std::int32_t max_running, std::int32_t max_waiting, std::chrono::milliseconds patience)
      : max_running_(max_running), max_waiting_(max_waiting), patience_(patience) {}

  // kExhausted where the tenant has as many requests as it may.
  Expected<TenantPlace> admit(const std::shared_ptr<const Tenant>& tenant);

  using Granted = std::function<void(const Status& status, Ticket ticket)>;
  // Calls back at once where there is room, or where the queue is full (kExhausted); else later: with a
  // ticket, or with kExhausted when patience has ended. Returns the number to leave() with; 0 where it has
  // called back.
  std::uint64_t enter(TimePoint now, Granted granted);
  void leave(std::uint64_t number);
  void tick(TimePoint now);

  std::int32_t running() const { return running_; }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  friend class Ticket;
  friend class TenantPlace;
  struct Waiter {
    std::uint64_t number = 0;
    TimePoint until{};
    Granted granted;
  };
  void released();

  const std::int32_t max_running_;
  const std::int32_t max_waiting_;
  const std::chrono::milliseconds patience_;
  std::int32_t running_ = 0;
  bool granting_ = false;  // released() is under way: places given back meanwhile are its loop's
  std::uint64_t next_number_ = 1;
  std::list<Waiter> waiting_;
  std::unordered_map<const Tenant*, std::int32_t> by_tenant_;
};

}  // namespace shoal::gateway
