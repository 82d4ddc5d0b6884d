#include "formats/read_ahead.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace shoal::formats {
namespace {

// What reads around the page cache are aligned to: a page, and no disk has larger sectors.
constexpr std::size_t kPage = 4096;
// A part may begin and end anywhere in a page.
constexpr std::size_t kBufferBytes = ReadAhead::kLongest + 2 * kPage;

}  // namespace

Expected<ReadAhead> ReadAhead::start(std::vector<Part> parts, bool around_cache) {
  auto shared = std::make_unique<Shared>();
  const std::size_t bytes =
      std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                      [](std::size_t sum, const Part& part) { return sum + part.length; });
  const std::size_t buffers = std::clamp<std::size_t>(bytes / 8 / kLongest, 2, kBuffers);
  SHOAL_ASSIGN(memory, Buffer::allocate(buffers * kBufferBytes, "reading weights"));
  shared->memory = std::move(memory);
  shared->around_cache = around_cache;
  shared->buffer_of.assign(parts.size(), -1);
  for (std::size_t i = 0; i < buffers; ++i) shared->free.push_back(static_cast<std::int8_t>(i));
  shared->parts = std::move(parts);
  return ReadAhead(std::move(shared));
}

ReadAhead::ReadAhead(std::unique_ptr<Shared> shared)
    : shared_(std::move(shared)), reader_([&state = *shared_] { run(state); }) {}

ReadAhead::ReadAhead(ReadAhead&&) noexcept = default;

ReadAhead::~ReadAhead() {
  if (!shared_) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->changed.notify_all();
  reader_.join();
}

void ReadAhead::run(Shared& shared) {
  for (std::size_t i = 0; i < shared.parts.size(); ++i) {
    std::int8_t buffer = -1;
    {
      std::unique_lock lock(shared.mutex);
      shared.changed.wait(lock, [&] { return shared.stop || !shared.free.empty(); });
      if (shared.stop) return;
      buffer = shared.free.back();
      shared.free.pop_back();
    }
    const Part& part = shared.parts[i];
    std::byte* at =
        shared.memory.data() + static_cast<std::size_t>(buffer) * kBufferBytes + part.offset % kPage;
    const Status status = part.file->read(part.offset, {at, part.length}, shared.around_cache);
    {
      const std::lock_guard lock(shared.mutex);
      shared.buffer_of[i] = buffer;
      shared.read = i + 1;
      if (!status.ok()) shared.error = status;
    }
    shared.changed.notify_all();
    if (!status.ok()) return;
  }
}

Expected<std::span<const std::byte>> ReadAhead::take(std::size_t part) {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return part < shared_->read || !shared_->error.ok(); });
  if (!shared_->error.ok()) return shared_->error;
  const Part& of = shared_->parts[part];
  const auto buffer = static_cast<std::size_t>(shared_->buffer_of[part]);
  return std::span<const std::byte>(shared_->memory.data() + buffer * kBufferBytes + of.offset % kPage,
                                    of.length);
}

void ReadAhead::give_back(std::size_t part) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->free.push_back(shared_->buffer_of[part]);
    shared_->buffer_of[part] = -1;
  }
  shared_->changed.notify_all();
}

}  // namespace shoal::formats
