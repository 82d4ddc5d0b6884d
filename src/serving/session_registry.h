// The requests that run under a name of the client's, for /abort_request.
//
// Thread-safety: every function may be called from any thread.
// Ownership: none of the sessions: one that has ended takes its name out itself.
// Invariants: a name stands for one session at a time, whatever the number of its prompts.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace shoal::serving {

class GenerationSession;

class SessionRegistry {
 public:
  // False where a session of that name runs.
  bool add(const std::string& rid, std::weak_ptr<GenerationSession> session);
  void remove(const std::string& rid);
  // Ends all prompts of the session with finish reason `abort`. False where none has that name.
  bool abort(const std::string& rid);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<GenerationSession>> sessions_;
};

}  // namespace shoal::serving
