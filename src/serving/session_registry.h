// The requests that run under a name of the client's or that of their answer, for /abort_request, and the
// aborts that came before their request was read.
//
// Thread-safety: every function may be called from any thread.
// Ownership: none of the sessions: one that has ended takes its name out itself.
// Invariants:
//   1. A client's name stands for one session at a time, whatever the number of its prompts, and is free when
//      that has ended. A gateway that tries anew names the same answer again before the first try has ended:
//      both names then stand for the later session, and the first one's end takes them from nobody.
//   2. An abort reaches every request that was accepted before it, whether it waits, is being started or
//      runs, and none accepted after it; one accepted meanwhile may go either way. Requests carry the number
//      under which the text thread took them.

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
  struct Names {
    std::string rid;     // the client's; empty: none
    std::string answer;  // under which its client sees the answer; empty: none
  };
  // Before a session runs. number: of the request on the text thread.
  Admission admit(const Names& names, std::uint64_t number, const std::weak_ptr<GenerationSession>& session);
  // Frees whichever of the names stand for `session`.
  void remove(const Names& names, const std::weak_ptr<GenerationSession>& session);
  // Ends all prompts of the session of that name, a client's before an answer's, with finish reason `abort`;
  // false where none runs. Other requests of the name, among those accepted so far, up to last_number, are
  // refused when they have been read.
  bool abort(const std::string& rid, std::uint64_t last_number);
  // Refuses every request up to last_number that has not been read yet. One that has been admitted but not
  // submitted to the engine in full asks aborts_all() when it has.
  void abort_unread(std::uint64_t last_number);
  bool aborts_all(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  struct Named {
    std::weak_ptr<GenerationSession> session;
    std::string answer;
  };
  std::unordered_map<std::string, Named> sessions_;  // by the client's name
  std::unordered_map<std::string, std::weak_ptr<GenerationSession>> answers_;
  // Aborts whose request may still be unread, as they came: those of several threads may be out of the order
  // of their numbers. At most kMaxUnread.
  std::deque<std::pair<std::uint64_t, std::string>> unread_;
  std::uint64_t all_until_ = 0;
};

}  // namespace shoal::serving
