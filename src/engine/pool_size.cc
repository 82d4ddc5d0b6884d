#include "engine/pool_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace shoal::engine {
namespace {

constexpr std::int64_t kMaxPages = std::numeric_limits<std::int32_t>::max() / 2;

}  // namespace

Expected<std::int64_t> pool_pages(const PoolRequest& request) {
  const auto page_bytes = static_cast<std::int64_t>(std::max<std::size_t>(request.page_bytes, 1));
  if (request.kv_pages < 0 || request.kv_pages > kMaxPages)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--kv-pages {}: it must be between 1 and {}", request.kv_pages, kMaxPages),
                  "--kv-pages");
  if (request.kv_pages > 0) {
    if (request.kv_pages > (std::int64_t{1} << 46) / page_bytes)
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("--kv-pages {}: a page takes {} bytes, so they exceed the address space",
                                request.kv_pages, page_bytes),
                    "--kv-pages");
    return request.kv_pages;
  }
  if (request.kv_bytes != 0) {
    if (request.kv_bytes < page_bytes || request.kv_bytes > (std::int64_t{1} << 46))
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("--kv-bytes {}: one page of this model's KV takes {} bytes", request.kv_bytes,
                                page_bytes),
                    "--kv-bytes");
    return std::min(kMaxPages, request.kv_bytes / page_bytes);
  }
  const auto available =
      static_cast<std::int64_t>(std::min<std::size_t>(request.available, std::size_t{1} << 46));
  const std::int64_t usable = available / 10 * 9 / page_bytes;
  const std::int64_t most = request.context_pages * std::max(request.max_sequences, 1);
  std::int64_t pages = std::min(available / 2 / page_bytes, most);
  pages = std::max(pages, std::min(request.context_pages, usable));
  if (pages < 1)
    return Status(ErrorCode::kExhausted,
                  fmt::format("no memory for the KV cache: one page takes {} bytes and {} are available; a "
                              "smaller model or fewer other programs would help",
                              page_bytes, available));
  return std::min(pages, kMaxPages);
}

Expected<std::int32_t> offload_places(const OffloadRequest& request) {
  if (!request.bytes) return static_cast<std::int32_t>(request.kv_pages / 4);
  const auto page_bytes = static_cast<std::int64_t>(std::max<std::size_t>(request.page_bytes, 1));
  if (*request.bytes != 0 && (*request.bytes < page_bytes || *request.bytes > (std::int64_t{1} << 46)))
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--offload-bytes {}: it must be 0, or at least the {} bytes that one page of "
                              "this model's KV takes on a rank",
                              *request.bytes, page_bytes),
                  "--offload-bytes");
  return static_cast<std::int32_t>(std::min(kMaxPages, *request.bytes / page_bytes));
}

}  // namespace shoal::engine
