#include "serving/session_registry.h"

#include <algorithm>
#include <utility>

#include "serving/generation_session.h"

namespace shoal::serving {

namespace {

// More aborts of names that nobody has are forgotten, the oldest first.
constexpr std::size_t kMaxUnread = 4096;

}  // namespace

SessionRegistry::Admission SessionRegistry::admit(const std::string& rid, std::uint64_t number,
                                                  std::weak_ptr<GenerationSession> session) {
  const std::lock_guard lock(mutex_);
  while (!unread_.empty() && unread_.front().first < number)
    unread_.pop_front();  // all it meant has been read
  if (number <= all_until_) return Admission::kAborted;
  if (rid.empty()) return Admission::kAdmitted;
  const auto aborts = [&](const auto& entry) { return entry.first >= number && entry.second == rid; };
  if (std::any_of(unread_.begin(), unread_.end(), aborts)) return Admission::kAborted;
  return sessions_.emplace(rid, std::move(session)).second ? Admission::kAdmitted : Admission::kNameTaken;
}

void SessionRegistry::abort_unread(std::uint64_t last_number) {
  const std::lock_guard lock(mutex_);
  all_until_ = std::max(all_until_, last_number);
}

bool SessionRegistry::aborts_all(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return number <= all_until_;
}

void SessionRegistry::remove(const std::string& rid) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(rid);
}

bool SessionRegistry::abort(const std::string& rid, std::uint64_t last_number) {
  if (rid.empty()) return false;
  std::shared_ptr<GenerationSession> session;
  {
    const std::lock_guard lock(mutex_);
    const auto it = sessions_.find(rid);
    if (it != sessions_.end()) session = it->second.lock();
    // Also where one runs: a second of its name may be waiting, and be read when this one has ended.
    unread_.emplace_back(last_number, rid);
    if (unread_.size() > kMaxUnread) unread_.pop_front();
  }
  if (session == nullptr) return false;
  session->abort();  // outside the lock: the session's own mutex comes before it
  return true;
}

}  // namespace shoal::serving
