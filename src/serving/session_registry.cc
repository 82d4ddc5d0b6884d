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
    unread_.pop_front();  // all they meant has been read
  if (number <= all_until_) return Admission::kAborted;
  if (rid.empty()) return Admission::kAdmitted;
  const auto aborts = [&rid](const auto& entry) { return entry.second == rid; };
  if (std::any_of(unread_.begin(), unread_.end(), aborts)) return Admission::kAborted;
  return sessions_.emplace(rid, std::move(session)).second ? Admission::kAdmitted : Admission::kNameTaken;
}

void SessionRegistry::abort_unread(std::uint64_t last_number) {
  const std::lock_guard lock(mutex_);
  all_until_ = std::max(all_until_, last_number);
}

void SessionRegistry::remove(const std::string& rid) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(rid);
}

bool SessionRegistry::abort(const std::string& rid, std::uint64_t last_number) {
  std::shared_ptr<GenerationSession> session;
  {
    const std::lock_guard lock(mutex_);
    const auto it = sessions_.find(rid);
    if (it != sessions_.end()) {
      session = it->second.lock();
    } else if (!rid.empty()) {
      unread_.emplace_back(last_number, rid);
      if (unread_.size() > kMaxUnread) unread_.pop_front();
    }
  }
  if (session == nullptr) return false;
  session->abort();  // outside the lock: the session's own mutex comes before it
  return true;
}

}  // namespace shoal::serving
