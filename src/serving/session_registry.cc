#include "serving/session_registry.h"

#include <algorithm>
#include <utility>

#include "serving/generation_session.h"

namespace shoal::serving {

namespace {

// More aborts of names that nobody has are forgotten, the oldest first.
constexpr std::size_t kMaxUnread = 4096;

// Also of a session that is going away.
bool is_same(const std::weak_ptr<GenerationSession>& a, const std::weak_ptr<GenerationSession>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

SessionRegistry::Admission SessionRegistry::admit(const Names& names, std::uint64_t number,
                                                  const std::weak_ptr<GenerationSession>& session) {
  const std::lock_guard lock(mutex_);
  while (!unread_.empty() && unread_.front().first < number)
    unread_.pop_front();  // all it meant has been read
  if (number <= all_until_) return Admission::kAborted;
  if (!names.rid.empty()) {
    const auto aborts = [&](const auto& entry) { return entry.first >= number && entry.second == names.rid; };
    if (std::any_of(unread_.begin(), unread_.end(), aborts)) return Admission::kAborted;
    const auto it = sessions_.find(names.rid);
    if (it != sessions_.end() && (names.answer.empty() || it->second.answer != names.answer))
      return Admission::kNameTaken;
    sessions_.insert_or_assign(names.rid, Named{session, names.answer});
  }
  if (!names.answer.empty()) answers_.insert_or_assign(names.answer, session);
  return Admission::kAdmitted;
}

void SessionRegistry::abort_unread(std::uint64_t last_number) {
  const std::lock_guard lock(mutex_);
  all_until_ = std::max(all_until_, last_number);
}

bool SessionRegistry::aborts_all(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return number <= all_until_;
}

void SessionRegistry::remove(const Names& names, const std::weak_ptr<GenerationSession>& session) {
  const std::lock_guard lock(mutex_);
  if (const auto it = sessions_.find(names.rid);
      it != sessions_.end() && is_same(it->second.session, session))
    sessions_.erase(it);
  if (const auto it = answers_.find(names.answer); it != answers_.end() && is_same(it->second, session))
    answers_.erase(it);
}

bool SessionRegistry::abort(const std::string& rid, std::uint64_t last_number) {
  if (rid.empty()) return false;
  std::shared_ptr<GenerationSession> session;
  {
    const std::lock_guard lock(mutex_);
    const auto it = sessions_.find(rid);
    if (it != sessions_.end()) session = it->second.session.lock();
    const auto answer = answers_.find(rid);
    if (session == nullptr && answer != answers_.end()) session = answer->second.lock();
    // Also where one runs: a second of its name may be waiting, and be read when this one has ended.
    unread_.emplace_back(last_number, rid);
    if (unread_.size() > kMaxUnread) unread_.pop_front();
  }
  if (session == nullptr) return false;
  session->abort();  // outside the lock: the session's own mutex comes before it
  return true;
}

}  // namespace shoal::serving
