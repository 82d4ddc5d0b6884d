// The requests that run under a name of the client's, for /abort_request, and the aborts that came before
// their request was read.
//
// Thread-safety: every function may be called from any thread.
// Ownership: none of the sessions: one that has ended takes its name out itself.
// Invariants: a name stands for one session at a time, whatever the number of its prompts. An abort reaches
// what
//   was accepted before it and nothing later: requests carry the number under which the text thread took
//   them.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace shoal::serving {

class GenerationSession;

class SessionRegistry {
 public:
  enum class Admission { kAdmitted, kNameTaken, kAborted };
  // Before a session runs; an empty rid is no name. number: of the request on the text thread.
  Admission admit(const std::string& rid, std::uint64_t number, std::weak_ptr<GenerationSession> session);
  void remove(const std::string& rid);
  // Ends all prompts of the session with finish reason `abort`. False where none has that name; then a
  // request of that name among those accepted so far, up to last_number, is refused when it has been read.
  bool abort(const std::string& rid, std::uint64_t last_number);
  // The same for every request that has not been read yet.
  void abort_unread(std::uint64_t last_number);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<GenerationSession>> sessions_;
  // Aborts whose request may still be unread, in the order of their numbers; at most kMaxUnread.
  std::deque<std::pair<std::uint64_t, std::string>> unread_;
  std::uint64_t all_until_ = 0;
};

}  // namespace shoal::serving
