#include "comm/control_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"

namespace shoal::comm {
namespace {

using wire::MessageType;

constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kMostOpening = 4096;
constexpr std::size_t kMostBody = std::size_t{64} << 20;
// A body is taken in steps: memory grows with what has come, not with what was announced.
constexpr std::size_t kStep = std::size_t{1} << 20;
// A peer that takes nothing for so long is as good as gone: its reader never waits for anything.
constexpr std::chrono::milliseconds kSendTime{5000};

// The waits of a frame, all by one moment ...
class Until {
 public:
  explicit Until(TimePoint deadline) : deadline_(deadline) {}
  Status readable(const Socket& socket) const { return socket.await_readable(deadline_); }
  Status writable(const Socket& socket) const { return socket.await_writable(deadline_); }

 private:
  TimePoint deadline_;
};

// ... or each for so long. Counted in slices: where this process itself was stopped meanwhile, as both ends
// are when a machine is paused, a slice still counts as one.
class UnlessIdle {
 public:
  explicit UnlessIdle(std::chrono::milliseconds longest) : longest_(longest) {}
  Status readable(const Socket& socket) const {
    return in_slices([&](TimePoint end) { return socket.await_readable(end); });
  }
  Status writable(const Socket& socket) const {
    return in_slices([&](TimePoint end) { return socket.await_writable(end); });
  }

 private:
  template <typename F>
  Status in_slices(F&& await) const {
    constexpr std::chrono::milliseconds kSlice{100};
    Status status;
    for (auto left = longest_; left.count() > 0; left -= kSlice) {
      status = await(now() + std::min(left, kSlice));
      if (status.ok()) break;
    }
    return status;
  }

  std::chrono::milliseconds longest_;
};

template <typename Waits>
Status send_bytes(Socket& socket, std::span<const std::byte> bytes, const Waits& waits) {
  while (!bytes.empty()) {
    SHOAL_ASSIGN(n, socket.send_some(bytes));
    bytes = bytes.subspan(n);
    if (n == 0) SHOAL_TRY(waits.writable(socket));
  }
  return {};
}

template <typename Waits>
Status receive_bytes(Socket& socket, std::span<std::byte> bytes, const Waits& waits) {
  while (!bytes.empty()) {
    SHOAL_ASSIGN(n, socket.receive_some(bytes));
    bytes = bytes.subspan(n);
    if (n == 0) SHOAL_TRY(waits.readable(socket));
  }
  return {};
}

template <typename Waits>
Status send_frame(Socket& socket, MessageType type, std::span<const std::byte> body, const Waits& waits) {
  wire::ByteWriter header;
  header.put(static_cast<std::uint32_t>(body.size()));
  header.put(static_cast<std::uint16_t>(type));
  header.put(wire::kWireVersion);
  std::vector<std::byte> bytes = header.take();
  // Small ones in one piece: one packet.
  if (body.size() <= kMostOpening) {
    bytes.insert(bytes.end(), body.begin(), body.end());
    return send_bytes(socket, bytes, waits);
  }
  SHOAL_TRY(send_bytes(socket, bytes, waits));
  return send_bytes(socket, body, waits);
}

template <typename Waits>
Expected<ControlFrame> receive_frame(Socket& socket, std::size_t most, const Waits& waits) {
  std::array<std::byte, kHeaderBytes> header{};
  SHOAL_TRY(receive_bytes(socket, header, waits));
  wire::ByteReader in(header);
  const auto length = in.get<std::uint32_t>();
  ControlFrame frame;
  frame.type = static_cast<MessageType>(in.get<std::uint16_t>());
  const auto version = in.get<std::uint16_t>();
  if (version != wire::kWireVersion)
    return Status(ErrorCode::kCorrupt, fmt::format("the peer speaks version {} of the wire, this process {}",
                                                   version, wire::kWireVersion));
  if (length > most)
    return Status(ErrorCode::kCorrupt, fmt::format("a message of {} bytes is longer than any", length));
  while (frame.body.size() < length) {
    const std::size_t have = frame.body.size();
    frame.body.resize(std::min<std::size_t>(length, have + kStep));
    SHOAL_TRY(receive_bytes(socket, std::span(frame.body).subspan(have), waits));
  }
  return frame;
}

// The body of a frame of the opening: exactly these bytes.
Status receive_exactly(Socket& socket, MessageType type, std::span<std::byte> body, TimePoint deadline) {
  SHOAL_ASSIGN(frame, receive_frame(socket, kMostOpening, Until(deadline)));
  if (frame.type != type || frame.body.size() != body.size())
    return {ErrorCode::kCorrupt, "the peer does not open as a process of a cluster does"};
  std::copy(frame.body.begin(), frame.body.end(), body.begin());
  return {};
}

Status other_token() {
  return {ErrorCode::kInvalidArgument, "the peer holds another cluster token: start both with the same"};
}

}  // namespace

Status open_as_caller(Socket& socket, const wire::ClusterToken& token, wire::LinkPurpose purpose,
                      TimePoint deadline) {
  SHOAL_ASSIGN(mine, wire::draw_nonce());
  wire::ByteWriter hello;
  hello.put(static_cast<std::uint8_t>(purpose));
  hello.put_bytes(mine);
  SHOAL_TRY(send_frame(socket, MessageType::kHello, hello.take(), Until(deadline)));
  std::array<std::byte, 64> challenge{};
  SHOAL_TRY(receive_exactly(socket, MessageType::kChallenge, challenge, deadline));
  wire::Nonce theirs;
  wire::Mac proof;
  std::copy_n(challenge.begin(), 32, theirs.begin());
  std::copy_n(challenge.begin() + 32, 32, proof.begin());
  if (!wire::same_mac(proof, token.callee_proof(purpose, mine, theirs))) return other_token();
  return send_frame(socket, MessageType::kProof, token.caller_proof(purpose, mine, theirs), Until(deadline));
}

Status open_as_callee(Socket& socket, const wire::ClusterToken& token, wire::LinkPurpose purpose,
                      TimePoint deadline) {
  std::array<std::byte, 33> hello{};
  SHOAL_TRY(receive_exactly(socket, MessageType::kHello, hello, deadline));
  if (hello[0] != static_cast<std::byte>(purpose))
    return {ErrorCode::kCorrupt, "the peer has come to the wrong port"};
  wire::Nonce theirs;
  std::copy_n(hello.begin() + 1, 32, theirs.begin());
  SHOAL_ASSIGN(mine, wire::draw_nonce());
  wire::ByteWriter challenge;
  challenge.put_bytes(mine);
  challenge.put_bytes(token.callee_proof(purpose, theirs, mine));
  SHOAL_TRY(send_frame(socket, MessageType::kChallenge, challenge.take(), Until(deadline)));
  wire::Mac proof;
  SHOAL_TRY(receive_exactly(socket, MessageType::kProof, proof, deadline));
  if (!wire::same_mac(proof, token.caller_proof(purpose, theirs, mine))) return other_token();
  return {};
}

Status ControlLink::send(MessageType type, std::span<const std::byte> body) {
  if (body.size() > kMostBody)
    return {ErrorCode::kInternal, fmt::format("a message of {} bytes is longer than any", body.size())};
  const std::lock_guard lock(sending_);
  Status status = send_frame(socket_, type, body, UnlessIdle(kSendTime));
  // Half a frame may be out.
  if (!status.ok()) socket_.shut_down();
  return status;
}

Expected<ControlFrame> ControlLink::receive(TimePoint deadline) {
  return receive_frame(socket_, kMostBody, Until(deadline));
}

Expected<ControlFrame> ControlLink::receive_unless_silent(std::chrono::milliseconds silence) {
  return receive_frame(socket_, kMostBody, UnlessIdle(silence));
}

}  // namespace shoal::comm
