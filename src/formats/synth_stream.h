// The weights of a synthetic model as a stream of bytes, tensor by tensor, for whichever file takes them.
//
// Thread-safety: none; fills its chunk on the pool it is given.
// Ownership: owns one chunk of memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/expected.h"
#include "core/thread_pool.h"
#include "formats/model_metadata.h"
#include "formats/synth.h"

namespace shoal::formats {

class SynthStream {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;

  // total_bytes: for the progress.
  SynthStream(const SynthOptions& options, std::uint64_t total_bytes, ThreadPool& pool);

  // The bytes of one tensor in `type`, in pieces. Norms are ones.
  Status write(const TensorNeed& need, DType type, const Sink& sink);
  Status write_floats(const std::vector<float>& values, const Sink& sink);

 private:
  Status write_blocks(DType type, std::uint64_t key, float sigma, std::int64_t blocks, const Sink& sink);
  Status write_ones(DType type, std::int64_t count, const Sink& sink);
  Status put(std::span<const std::byte> bytes, const Sink& sink);
  std::span<std::byte> piece(std::int64_t begin, std::int64_t end) {
    return std::span(chunk_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  const SynthOptions& options_;
  std::uint64_t total_;
  ThreadPool& pool_;
  std::vector<std::byte> chunk_;
  std::uint64_t done_ = 0;
};

}  // namespace shoal::formats
