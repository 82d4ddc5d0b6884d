#include "comm/tcp_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/control_link.h"
#include "core/log.h"
#include "wire/bytes.h"

namespace shoal::comm {
namespace {

constexpr std::size_t kAttachBytes = 16;  // epoch, from, to
// For a rank that is reached, but whose own start may keep it from answering.
constexpr std::chrono::seconds kOpeningTime{5};
constexpr std::size_t kMostOpenings = 64;
// Between two looks at whether all are there.
constexpr std::chrono::milliseconds kSlice{50};

// While it lives others may shut the call down.
class CallAtHand {
 public:
  CallAtHand(const OnCall& on_call, const Socket& socket) : on_call_(on_call) {
    if (on_call_) on_call_(&socket);
  }
  ~CallAtHand() {
    if (on_call_) on_call_(nullptr);
  }
  CallAtHand(const CallAtHand&) = delete;

 private:
  const OnCall& on_call_;
};

// Who calls whom. The one that is called may take its time: it may be at its own calls.
Status introduce(Socket& socket, std::int32_t from, std::int32_t to, const wire::ClusterToken& token,
                 Epoch epoch, TimePoint deadline, const OnCall& on_call) {
  const CallAtHand at_hand(on_call, socket);
  SHOAL_TRY(open_as_caller(socket, token, wire::LinkPurpose::kCarrier, deadline));
  wire::ByteWriter attach;
  attach.put(epoch.value);
  attach.put(from);
  attach.put(to);
  return socket.send(attach.take(), deadline);
}

Expected<Socket> call(std::int32_t from, std::int32_t to, const Endpoint& endpoint,
                      const wire::ClusterToken& token, Epoch epoch, TimePoint deadline,
                      const OnCall& on_call) {
  SHOAL_ASSIGN(socket, connect_to(endpoint, std::min(deadline, now() + kOpeningTime)));
  SHOAL_TRY(introduce(socket, from, to, token, epoch, deadline, on_call));
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

// Whoever calls is answered on a thread of its own: a stranger that says nothing keeps nobody waiting.
class Callers {
 public:
  Callers(std::int32_t rank, std::vector<Socket>& sockets, const wire::ClusterToken& token, Epoch epoch)
      : rank_(rank),
        sockets_(sockets),
        token_(token),
        epoch_(epoch),
        missing_(static_cast<std::int32_t>(sockets.size()) - 1 - rank) {}
  ~Callers() {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& caller : callers_) {
        if (caller->socket.open()) caller->socket.shut_down();
      }
    }
    for (const auto& caller : callers_) {
      if (caller->thread.joinable()) caller->thread.join();
    }
  }
  Callers(const Callers&) = delete;

  std::int32_t missing() const {
    const std::lock_guard lock(mutex_);
    return missing_;
  }
  // Who cannot be answered now is hung up on.
  void take(Socket socket, TimePoint deadline) {
    const std::lock_guard lock(mutex_);
    if (openings_ >= kMostOpenings) return;
    callers_.push_back(std::make_unique<Caller>());
    Caller& caller = *callers_.back();
    caller.socket = std::move(socket);
    ++openings_;
    try {
      caller.thread = std::thread([this, &caller, deadline] { greet(caller, deadline); });
    } catch (const std::system_error& error) {
      --openings_;
      callers_.pop_back();
      turned_away(error.what());
    }
  }

 private:
  struct Caller {
    Socket socket;
    std::thread thread;
  };

  static void turned_away(const std::string& reason) {
    log(LogLevel::kWarn, "carrier.stranger", "reason=\"{}\"", reason);
  }

  void greet(Caller& caller, TimePoint deadline) {
    Status status;
    try {
      status = let_in(caller, deadline);
    } catch (const std::exception& error) {
      status = Status(ErrorCode::kInternal, error.what());
    }
    const std::lock_guard lock(mutex_);
    --openings_;
    if (status.ok()) return;
    turned_away(status.message());
    caller.socket = Socket();
  }

  Status let_in(Caller& caller, TimePoint deadline) {
    SHOAL_ASSIGN(from, answer(caller.socket, rank_, token_, epoch_, deadline));
    const std::lock_guard lock(mutex_);
    const bool awaited = from > rank_ && static_cast<std::size_t>(from) < sockets_.size() &&
                         !sockets_[static_cast<std::size_t>(from)].open();
    if (!awaited) return {ErrorCode::kInvalidArgument, fmt::format("rank {} is not awaited", from)};
    sockets_[static_cast<std::size_t>(from)] = std::move(caller.socket);
    --missing_;
    return {};
  }

  const std::int32_t rank_;
  std::vector<Socket>& sockets_;
  const wire::ClusterToken& token_;
  const Epoch epoch_;
  mutable std::mutex mutex_;
  std::int32_t missing_;
  std::size_t openings_ = 0;
  std::vector<std::unique_ptr<Caller>> callers_;
};

}  // namespace

Expected<std::vector<Socket>> connect_mesh(std::int32_t rank, std::span<const Endpoint> endpoints,
                                           Listener& listener, const wire::ClusterToken& token, Epoch epoch,
                                           TimePoint deadline, const OnCall& on_call) {
  std::vector<Socket> sockets(endpoints.size());
  for (std::int32_t peer = 0; peer < rank; ++peer) {
    auto socket =
        call(rank, peer, endpoints[static_cast<std::size_t>(peer)], token, epoch, deadline, on_call);
    if (!socket.ok())
      return Status(socket.error().code(), fmt::format("rank {} cannot be reached by rank {}: {}", peer, rank,
                                                       socket.error().message()));
    sockets[static_cast<std::size_t>(peer)] = *std::move(socket);
  }
  std::vector<Socket> callers(endpoints.size());
  {
    Callers answered(rank, callers, token, epoch);
    for (;;) {
      const std::int32_t missing = answered.missing();
      if (missing == 0) break;
      auto socket = listener.accept(std::min(deadline, now() + kSlice));
      if (socket.ok()) {
        answered.take(*std::move(socket), std::min(deadline, now() + kOpeningTime));
      } else if (socket.error().code() != ErrorCode::kDeadline || now() >= deadline) {
        return Status(socket.error().code(), fmt::format("{} ranks have not called rank {}: {}", missing,
                                                         rank, socket.error().message()));
      }
    }
  }
  std::move(callers.begin() + rank + 1, callers.end(), sockets.begin() + rank + 1);
  return sockets;
}

}  // namespace shoal::comm
