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
constexpr std::chrono::seconds kSendTime{5};

Status send_frame(Socket& socket, MessageType type, std::span<const std::byte> body, TimePoint deadline) {
  wire::ByteWriter header;
  header.put(static_cast<std::uint32_t>(body.size()));
  header.put(static_cast<std::uint16_t>(type));
  header.put(wire::kWireVersion);
  std::vector<std::byte> bytes = header.take();
  // Small ones in one piece: one packet.
  if (body.size() <= kMostOpening) {
    bytes.insert(bytes.end(), body.begin(), body.end());
    return socket.send(bytes, deadline);
  }
  SHOAL_TRY(socket.send(bytes, deadline));
  return socket.send(body, deadline);
}

Expected<ControlFrame> receive_frame(Socket& socket, std::size_t most, TimePoint deadline) {
  std::array<std::byte, kHeaderBytes> header{};
  SHOAL_TRY(socket.receive(header, deadline));
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
    SHOAL_TRY(socket.receive(std::span(frame.body).subspan(have), deadline));
  }
  return frame;
}

// The body of a frame of the opening: exactly these bytes.
Status receive_exactly(Socket& socket, MessageType type, std::span<std::byte> body, TimePoint deadline) {
  SHOAL_ASSIGN(frame, receive_frame(socket, kMostOpening, deadline));
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
  SHOAL_TRY(send_frame(socket, MessageType::kHello, hello.take(), deadline));
  std::array<std::byte, 64> challenge{};
  SHOAL_TRY(receive_exactly(socket, MessageType::kChallenge, challenge, deadline));
  wire::Nonce theirs;
  wire::Mac proof;
  std::copy_n(challenge.begin(), 32, theirs.begin());
  std::copy_n(challenge.begin() + 32, 32, proof.begin());
  if (!wire::same_mac(proof, token.callee_proof(purpose, mine, theirs))) return other_token();
  return send_frame(socket, MessageType::kProof, token.caller_proof(purpose, mine, theirs), deadline);
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
  SHOAL_TRY(send_frame(socket, MessageType::kChallenge, challenge.take(), deadline));
  wire::Mac proof;
  SHOAL_TRY(receive_exactly(socket, MessageType::kProof, proof, deadline));
  if (!wire::same_mac(proof, token.caller_proof(purpose, theirs, mine))) return other_token();
  return {};
}

Status ControlLink::send(MessageType type, std::span<const std::byte> body) {
  if (body.size() > kMostBody)
    return {ErrorCode::kInternal, fmt::format("a message of {} bytes is longer than any", body.size())};
  const std::lock_guard lock(sending_);
  Status status = send_frame(socket_, type, body, now() + kSendTime);
  // Half a frame may be out.
  if (!status.ok()) socket_.shut_down();
  return status;
}

Expected<ControlFrame> ControlLink::receive(TimePoint deadline) {
  return receive_frame(socket_, kMostBody, deadline);
}

}  // namespace shoal::comm
