#include "gateway/admission_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shoal::gateway {

Ticket::Ticket(Ticket&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  release();
  queue_ = std::exchange(other.queue_, nullptr);
  return *this;
}

void Ticket::release() {
  if (AdmissionQueue* queue = std::exchange(queue_, nullptr)) queue->released();
}

TenantPlace::TenantPlace(AdmissionQueue& queue, std::shared_ptr<const Tenant> tenant)
    : queue_(&queue), tenant_(std::move(tenant)) {
  ++queue_->by_tenant_[tenant_.get()];
}

TenantPlace::~TenantPlace() {
  if (tenant_ == nullptr) return;
  const auto it = queue_->by_tenant_.find(tenant_.get());
  if (--it->second == 0) queue_->by_tenant_.erase(it);
}

TenantPlace::TenantPlace(TenantPlace&& other) noexcept
    : queue_(other.queue_), tenant_(std::exchange(other.tenant_, nullptr)) {}

TenantPlace& TenantPlace::operator=(TenantPlace&& other) noexcept {
  std::swap(queue_, other.queue_);
  std::swap(tenant_, other.tenant_);
  return *this;
}

Expected<TenantPlace> AdmissionQueue::admit(const std::shared_ptr<const Tenant>& tenant) {
  if (tenant == nullptr || tenant->max_running == 0) return TenantPlace();
  const auto it = by_tenant_.find(tenant.get());
  if (it != by_tenant_.end() && it->second >= tenant->max_running)
    return Status(ErrorCode::kExhausted,
                  fmt::format("{} has {} requests under way, as many as it may", tenant->name, it->second));
  return TenantPlace(*this, tenant);
}

std::uint64_t AdmissionQueue::enter(TimePoint now, Granted granted) {
  if (running_ < max_running_ && waiting_.empty()) {
    ++running_;
    granted(Status(), Ticket(*this));
    return 0;
  }
  if (static_cast<std::int32_t>(waiting_.size()) >= max_waiting_) {
    granted(Status(ErrorCode::kExhausted,
                   fmt::format("the queue is full: {} requests run and {} wait", running_, waiting_.size())),
            Ticket());
    return 0;
  }
  const std::uint64_t number = next_number_++;
  waiting_.push_back({number, now + patience_, std::move(granted)});
  return number;
}

void AdmissionQueue::leave(std::uint64_t number) {
  std::erase_if(waiting_, [number](const Waiter& waiter) { return waiter.number == number; });
}

void AdmissionQueue::released() {
  --running_;
  // A grant may end at once and give its place back: a loop, as a thousand that fail must not nest.
  if (granting_) return;
  granting_ = true;
  while (!waiting_.empty() && running_ < max_running_) {
    const Waiter next = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    next.granted(Status(), Ticket(*this));
  }
  granting_ = false;
}

void AdmissionQueue::tick(TimePoint now) {
  while (!waiting_.empty() && waiting_.front().until <= now) {
    const Waiter late = std::move(waiting_.front());
    waiting_.pop_front();
    late.granted(Status(ErrorCode::kExhausted,
                        fmt::format("no place became free in {:.0f} s: {} requests run",
                                    std::chrono::duration<double>(patience_).count(), running_)),
                 Ticket());
  }
}

}  // namespace shoal::gateway
