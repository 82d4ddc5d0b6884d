#include "comm/tcp_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/control_link.h"
#include "core/log.h"
#include "wire/bytes.h"

namespace shoal::comm {
namespace {

constexpr std::size_t kAttachBytes = 16;  // epoch, from, to
// Ranks call while they are called: one that has connected goes on at once.
constexpr std::chrono::seconds kOpeningTime{2};

Expected<Socket> call(std::int32_t from, std::int32_t to, const Endpoint& endpoint,
                      const wire::ClusterToken& token, Epoch epoch, TimePoint deadline) {
  SHOAL_ASSIGN(socket, connect_to(endpoint, deadline));
  SHOAL_TRY(open_as_caller(socket, token, wire::LinkPurpose::kCarrier, deadline));
  wire::ByteWriter attach;
  attach.put(epoch.value);
  attach.put(from);
  attach.put(to);
  SHOAL_TRY(socket.send(attach.take(), deadline));
  return std::move(socket);
}

// Who has called.
Expected<std::int32_t> answer(Socket& socket, std::int32_t rank, const wire::ClusterToken& token, Epoch epoch,
                              TimePoint deadline) {
  SHOAL_TRY(open_as_callee(socket, token, wire::LinkPurpose::kCarrier, deadline));
  std::array<std::byte, kAttachBytes> bytes{};
  SHOAL_TRY(socket.receive(bytes, deadline));
  wire::ByteReader in(bytes);
  const auto theirs = in.get<std::uint64_t>();
  const auto from = in.get<std::int32_t>();
  const auto to = in.get<std::int32_t>();
  if (theirs != epoch.value)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} calls from epoch {}, this is epoch {}", from, theirs, epoch.value));
  if (to != rank)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} calls rank {} at rank {}", from, to, rank));
  return from;
}

}  // namespace

Expected<std::vector<Socket>> connect_mesh(std::int32_t rank, std::span<const Endpoint> endpoints,
                                           Listener& listener, const wire::ClusterToken& token, Epoch epoch,
                                           TimePoint deadline) {
  const auto ranks = static_cast<std::int32_t>(endpoints.size());
  std::vector<Socket> sockets(endpoints.size());
  for (std::int32_t peer = 0; peer < rank; ++peer) {
    auto socket = call(rank, peer, endpoints[static_cast<std::size_t>(peer)], token, epoch, deadline);
    if (!socket.ok())
      return Status(socket.error().code(), fmt::format("rank {} cannot be reached by rank {}: {}", peer, rank,
                                                       socket.error().message()));
    sockets[static_cast<std::size_t>(peer)] = *std::move(socket);
  }
  for (std::int32_t missing = ranks - 1 - rank; missing > 0;) {
    auto socket = listener.accept(deadline);
    if (!socket.ok())
      return Status(socket.error().code(), fmt::format("{} ranks have not called rank {}: {}", missing, rank,
                                                       socket.error().message()));
    const auto from = answer(*socket, rank, token, epoch, std::min(deadline, now() + kOpeningTime));
    const bool awaited =
        from.ok() && *from > rank && *from < ranks && !sockets[static_cast<std::size_t>(*from)].open();
    if (!awaited) {
      log(LogLevel::kWarn, "carrier.stranger", "reason=\"{}\"",
          from.ok() ? fmt::format("rank {} is not awaited", *from) : from.error().message());
      continue;
    }
    sockets[static_cast<std::size_t>(*from)] = *std::move(socket);
    --missing;
  }
  return sockets;
}

}  // namespace shoal::comm
