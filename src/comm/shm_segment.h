// The memory that the ranks of a host share: an anonymous file, gone with the last process that maps it.
//
// Thread-safety: const after creation; the words in it are atomics.
// Ownership: owns mapping and descriptor. Nothing of it has a name in any file system.

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/shm_layout.h"
#include "core/expected.h"

namespace shoal::comm {

class ShmSegment {
 public:
  // A fresh one, all zero but for its shape.
  static Expected<std::shared_ptr<ShmSegment>> create(ShmLayout layout);
  // Takes the descriptor, also where it fails: kCorrupt where its size or shape is not the layout's.
  static Expected<std::shared_ptr<ShmSegment>> attach(int fd, ShmLayout layout);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  const ShmLayout& layout() const { return layout_; }
  int fd() const { return fd_; }
  template <typename T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  SegmentHeader& header() const { return *at<SegmentHeader>(0); }

  // The first reason stays, or as much of it as was written by a process that died over it. On return
  // aborted() is true.
  void abort(const std::string& reason) const;
  bool aborted() const { return header().aborted.load(std::memory_order_acquire) != 0; }
  // Empty before, never after.
  std::string abort_reason() const;

 private:
  ShmSegment(ShmLayout layout, int fd, std::byte* base) : layout_(std::move(layout)), fd_(fd), base_(base) {}
  static Expected<std::shared_ptr<ShmSegment>> map(int fd, ShmLayout layout);

  ShmLayout layout_;
  int fd_ = -1;
  std::byte* base_ = nullptr;
};

}  // namespace shoal::comm
