// How the ranks of a host get hold of their shared memory: the head hands its descriptor out over a Unix
// socket with an abstract name, which lives in the network namespace and in no file system.
//
// Thread-safety: ShmHost owns a thread; attach_segment() may be called from any.
// Ownership: ShmHost shares the segment and ends with its destructor.
// Errors: kUnavailable, kDeadline; a peer under another user gets nothing.

#pragma once

#include <memory>
#include <string>
#include <thread>

#include "comm/shm_segment.h"
#include "comm/socket.h"
#include "core/expected.h"

namespace shoal::comm {

class ShmHost {
 public:
  static Expected<std::unique_ptr<ShmHost>> open(std::shared_ptr<ShmSegment> segment, std::string name);
  // A name that nobody can guess.
  static Expected<std::string> draw_name();
  ~ShmHost();

  // What the others are told.
  const std::string& name() const { return name_; }

 private:
  ShmHost(std::string name, std::shared_ptr<ShmSegment> segment, Listener listener)
      : name_(std::move(name)), segment_(std::move(segment)), listener_(std::move(listener)) {}
  void serve();

  std::string name_;
  std::shared_ptr<ShmSegment> segment_;
  Listener listener_;
  std::thread thread_;
};

// The host may be a moment late: it is tried again until the deadline.
Expected<std::shared_ptr<ShmSegment>> attach_segment(const std::string& name, ShmLayout layout,
                                                     TimePoint deadline);

// Ranks of one identity see the same memory: boot id and network namespace.
std::string host_identity();

}  // namespace shoal::comm
