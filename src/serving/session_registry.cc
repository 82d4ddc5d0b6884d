#include "serving/session_registry.h"

#include <utility>

#include "serving/generation_session.h"

namespace shoal::serving {

bool SessionRegistry::add(const std::string& rid, std::weak_ptr<GenerationSession> session) {
  const std::lock_guard lock(mutex_);
  return sessions_.emplace(rid, std::move(session)).second;
}

void SessionRegistry::remove(const std::string& rid) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(rid);
}

bool SessionRegistry::abort(const std::string& rid) {
  std::shared_ptr<GenerationSession> session;
  {
    const std::lock_guard lock(mutex_);
    const auto it = sessions_.find(rid);
    if (it != sessions_.end()) session = it->second.lock();
  }
  if (session == nullptr) return false;
  session->abort();  // outside the lock: the session's own mutex comes before it
  return true;
}

}  // namespace shoal::serving
