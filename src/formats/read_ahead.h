// Reads parts of files ahead of the threads that use them, through a few buffers that are used again and
// again.
//
// Reading a mapping costs a fault for every few pages and, for files that are not in memory, as many fresh
// pages as the file has, which a virtual machine gets from its host at 1 to 2 GB/s. Here the kernel copies
// into the same few pages all the time; and parts can be read around the page cache, straight into them.
//
// Thread-safety: any thread may take() and give_back(); one reader thread belongs to the object.
// Ownership: borrows the files, which must outlive it; owns the buffers. What take() gives is the caller's
//   until give_back().
// Invariants:
//   1. Parts are read in their order, never more than kBuffers that have not been given back. Who takes parts
//      in that order and gives each back before taking the next waits for nothing but the disk.
//   2. After a failed read every take() fails with that error. Waits end with the read they wait for; a
//      read has no deadline of its own, as a page fault has none.
//   3. The destructor ends the reader after the read that is under way.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/expected.h"
#include "core/mapped_file.h"
#include "tensor/buffer.h"

namespace shoal::formats {

class ReadAhead {
 public:
  struct Part {
    const MappedFile* file = nullptr;
    std::size_t offset = 0;
    std::size_t length = 0;  // at most kLongest
  };
  // 4 MiB keep a disk busy, and 16 of them a disk and many threads. Small models get fewer, down to two: all
  // buffers together take an eighth of what is read, at most 64 MiB.
  static constexpr std::size_t kLongest = std::size_t{4} << 20;
  static constexpr std::size_t kBuffers = 16;

  // around_cache: MappedFile::read's.
  // Fails with kExhausted.
  static Expected<ReadAhead> start(std::vector<Part> parts, bool around_cache);

  ReadAhead(ReadAhead&&) noexcept;
  ~ReadAhead();

  std::size_t size() const { return shared_->parts.size(); }
  // The bytes of a part; waits until they are there. Each part can be taken once.
  Expected<std::span<const std::byte>> take(std::size_t part);
  void give_back(std::size_t part);

 private:
  struct Shared {
    std::vector<Part> parts;
    bool around_cache = false;
    Buffer memory;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::int8_t> free;       // buffers
    std::vector<std::int8_t> buffer_of;  // of each part that has been read and not given back, else -1
    std::size_t read = 0;                // parts [0, read) have been read
    Status error;
    bool stop = false;
  };
  explicit ReadAhead(std::unique_ptr<Shared> shared);
  static void run(Shared& shared);

  std::unique_ptr<Shared> shared_;
  std::thread reader_;
};

}  // namespace shoal::formats
