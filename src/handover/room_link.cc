#include "handover/room_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "wire/bytes.h"

namespace shoal::handover {
namespace {

constexpr std::size_t kHeaderBytes = 8;
// Waits are in slices: one in which this process was stopped counts as one.
constexpr std::chrono::milliseconds kSlice{50};

std::vector<std::byte> header_of(wire::MessageType type, std::size_t length) {
  wire::ByteWriter header;
  header.put(static_cast<std::uint32_t>(length));
  header.put(static_cast<std::uint16_t>(type));
  header.put(wire::kWireVersion);
  return header.take();
}

}  // namespace

Expected<std::unique_ptr<RoomLink>> RoomLink::make(comm::Socket socket) {
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0)
    return Status(ErrorCode::kExhausted, fmt::format("no connection for a room: {}", std::strerror(errno)));
  return std::unique_ptr<RoomLink>(new RoomLink(std::move(socket), wake));
}

RoomLink::~RoomLink() { ::close(wake_fd_); }

void RoomLink::wake() {
  const std::uint64_t one = 1;
  // Fails only where it is full, and then it wakes all the same.
  [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof one);
}

void RoomLink::say_why(std::string_view why) {
  [[maybe_unused]] const Status sent =
      send(wire::MessageType::kAbort, wire::encode_sentence(why.substr(0, kMostSentence / 4)));
}

void RoomLink::abort(std::string_view why) {
  if (std::unique_lock lock(sending_, std::try_to_lock); lock.owns_lock() && !in_frame_.load()) {
    const std::vector<std::byte> body = wire::encode_sentence(why.substr(0, kMostSentence / 4));
    std::vector<std::byte> frame = header_of(wire::MessageType::kAbort, body.size());
    frame.insert(frame.end(), body.begin(), body.end());
    [[maybe_unused]] const auto sent = socket_.send_some(frame);
  }
  socket_.shut_down();
  wake();
}

// Only between frames. One that the socket does not take as a whole ends the connection: it holds megabytes.
void RoomLink::beat() {
  if (now() - last_beat_ < kBeat || in_frame_.load()) return;
  last_beat_ = now();
  const std::lock_guard lock(sending_);
  const std::vector<std::byte> frame = header_of(wire::MessageType::kBeat, 0);
  const auto sent = socket_.send_some(frame);
  if (sent.ok() && *sent != 0 && *sent != frame.size()) socket_.shut_down();
}

Expected<bool> RoomLink::await(bool readable, bool wakes) {
  std::chrono::nanoseconds& waited = readable ? silent_ : stuck_;
  for (;;) {
    beat();
    const TimePoint began = now();
    std::array<pollfd, 2> waits = {pollfd{socket_.fd(), static_cast<short>(readable ? POLLIN : POLLOUT), 0},
                                   pollfd{wake_fd_, POLLIN, 0}};
    const int ready = ::poll(waits.data(), wakes ? 2 : 1, static_cast<int>(kSlice.count()));
    if (ready > 0 && waits[0].revents != 0 && !(wakes && waits[1].revents != 0)) return false;
    // Also where it is woken: who is woken often would else never notice.
    waited += std::min<std::chrono::nanoseconds>(now() - began, kSlice);
    if (waits[0].revents == 0 && waited >= kSilence)
      return Status(ErrorCode::kUnavailable,
                    readable ? "the other worker is silent" : "the other worker takes nothing more");
    if (ready > 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_fd_, &count, sizeof count);
      return true;
    }
  }
}

Status RoomLink::await_word(std::chrono::milliseconds longest) {
  const TimePoint end = now() + longest;
  // Beats of the peer are left to be read by await_frame(): some bytes each.
  do {
    beat();
    std::array<pollfd, 2> waits = {pollfd{socket_.fd(), POLLRDHUP, 0}, pollfd{wake_fd_, POLLIN, 0}};
    if (::poll(waits.data(), 2, static_cast<int>(kSlice.count())) <= 0) continue;
    if ((waits[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
      return {ErrorCode::kUnavailable, "the connection was closed"};
    if ((waits[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_fd_, &count, sizeof count);
      return {};
    }
  } while (now() < end);
  return {};
}

comm::Scope RoomLink::scope() const {
  const auto peer = comm::parse_endpoint(socket_.peer());
  const bool here = peer.ok() && peer->host == socket_.local_host();
  return here ? comm::Scope::kHost : comm::Scope::kNetwork;
}

Status RoomLink::await_bytes(bool readable) {
  const auto woken = await(readable, false);
  return woken.status();
}

Expected<std::optional<RoomLink::Frame>> RoomLink::await_frame() {
  for (;;) {
    SHOAL_ASSIGN(woken, await(true, true));
    if (woken) return std::optional<Frame>();
    std::array<std::byte, kHeaderBytes> header{};
    SHOAL_TRY(receive(header));
    wire::ByteReader in(header);
    Frame frame;
    frame.length = in.get<std::uint32_t>();
    frame.type = static_cast<wire::MessageType>(in.get<std::uint16_t>());
    if (const auto version = in.get<std::uint16_t>(); version != wire::kWireVersion)
      return Status(ErrorCode::kCorrupt,
                    fmt::format("the peer speaks version {} of the wire, this process {}", version,
                                wire::kWireVersion));
    if (frame.type != wire::MessageType::kBeat) return std::optional<Frame>(frame);
    if (frame.length != 0) return Status(ErrorCode::kCorrupt, "a beat has a body");
  }
}

Expected<std::vector<std::byte>> RoomLink::receive_body(const Frame& frame, std::size_t most) {
  if (frame.length > most)
    return Status(ErrorCode::kCorrupt, fmt::format("a message of {} bytes is longer than any", frame.length));
  constexpr std::size_t kStep = std::size_t{64} << 10;
  std::vector<std::byte> body;
  while (body.size() < frame.length) {
    const std::size_t have = body.size();
    body.resize(std::min<std::size_t>(frame.length, have + kStep));
    SHOAL_TRY(receive(std::span(body).subspan(have)));
  }
  return body;
}

Status RoomLink::receive(std::span<std::byte> to) {
  while (!to.empty()) SHOAL_TRY(advance(socket_.receive_some(to), to, true));
  return {};
}

Status RoomLink::send(wire::MessageType type, std::span<const std::byte> body) {
  SHOAL_TRY(begin_frame(type, static_cast<std::uint32_t>(body.size()), body));
  end_frame();
  return {};
}

Status RoomLink::begin_frame(wire::MessageType type, std::uint32_t length,
                             std::span<const std::byte> first) {
  in_frame_.store(true);
  std::vector<std::byte> bytes = header_of(type, length);
  bytes.insert(bytes.end(), first.begin(), first.end());
  return put(bytes);
}

Status RoomLink::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto moved = [&] {
      const std::lock_guard lock(sending_);
      return socket_.send_some(bytes);
    }();
    SHOAL_TRY(advance(moved, bytes, false));
  }
  return {};
}

Expected<bool> RoomLink::hear_landed() {
  SHOAL_ASSIGN(frame, await_frame());
  if (!frame) return false;
  if (frame->type == wire::MessageType::kLanded && frame->length == 0) return true;
  if (frame->type != wire::MessageType::kAbort)
    return Status(ErrorCode::kCorrupt, "the decode worker says what is not due");
  SHOAL_ASSIGN(body, receive_body(*frame, kMostSentence));
  SHOAL_ASSIGN(why, wire::decode_sentence(body));
  return Status(ErrorCode::kUnavailable, "the decode worker ended the handover: " + why);
}

Status RoomLink::last_word(Status otherwise, std::chrono::milliseconds longest) {
  const TimePoint end = now() + longest;
  do {
    pollfd wait{socket_.fd(), POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(std::min(longest, kSlice).count())) <= 0) continue;
    std::array<std::byte, kHeaderBytes> header{};
    if (!receive(header).ok()) break;
    wire::ByteReader in(header);
    Frame frame;
    frame.length = in.get<std::uint32_t>();
    frame.type = static_cast<wire::MessageType>(in.get<std::uint16_t>());
    if (frame.type == wire::MessageType::kBeat && frame.length == 0) continue;
    if (frame.type != wire::MessageType::kAbort) break;
    const auto body = receive_body(frame, kMostSentence);
    if (!body.ok()) break;
    if (const auto why = wire::decode_sentence(*body); why.ok()) return {ErrorCode::kUnavailable, *why};
    break;
  } while (now() < end);
  return otherwise;
}

void RoomLink::await_end(std::chrono::milliseconds longest) {
  const TimePoint end = now() + longest;
  // A wake ends one wait.
  while (now() < end && await_word(std::chrono::duration_cast<std::chrono::milliseconds>(end - now())).ok()) {
  }
}

}  // namespace shoal::handover
