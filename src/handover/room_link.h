// The connection of one room: frames as on a control connection (docs/wire.md, sections 1 and 8), and the
// bytes of pages between them, moved straight from and to where they lie.
//
// A room has a connection of its own: whoever aborts closes it, whoever dies closes it, and neither disturbs
// another room.
//
// Thread-safety: belongs to the thread of the room, but wake() and abort() may be called from any.
// Ownership: owns the socket.
// Invariants:
//   1. A beat goes out every kBeat while nothing else does; a peer from which no byte comes for kSilence of
//      waiting, or that takes none for as long, is gone (kUnavailable): what its kernel takes proves nothing.
//      Time in which this process was stopped does not count.
//   2. Bytes of pages are touched only under their PageGuard and only while it is open: once close() has
//      returned none is touched any more.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ledger.h"
#include "comm/socket.h"
#include "core/clock.h"
#include "core/expected.h"
#include "handover/page_guard.h"
#include "wire/rank_messages.h"

namespace shoal::handover {

class RoomLink {
 public:
  static constexpr std::chrono::milliseconds kBeat{250};
  static constexpr std::chrono::milliseconds kSilence{1500};
  // Bytes of pages that are moved at a time.
  static constexpr std::size_t kPiece = std::size_t{256} << 10;
  // Of an abort or a refusal; what is longer is cut.
  static constexpr std::size_t kMostSentence = 4096;

  static Expected<std::unique_ptr<RoomLink>> make(comm::Socket socket);
  ~RoomLink();
  RoomLink(const RoomLink&) = delete;
  RoomLink& operator=(const RoomLink&) = delete;

  struct Frame {
    wire::MessageType type = wire::MessageType::kBeat;
    std::uint32_t length = 0;  // of the body, which is still to be received
  };
  // The next frame that is no beat; nothing where wake() was called.
  Expected<std::optional<Frame>> await_frame();
  // True where the next frame says that everything has landed, false where wake() was called; kUnavailable
  // with the peer's reason where it has ended the handover, kCorrupt where it says anything else.
  Expected<bool> hear_landed();
  // Until something is there to be read, wake() is called, or this long; fails where the connection ended.
  Status await_word(std::chrono::milliseconds longest);
  // What the peer has said of its end, where it has come or comes within this time; else `otherwise`.
  Status last_word(Status otherwise, std::chrono::milliseconds longest);
  // Until the peer closes, at most this long: what it has not read yet would be lost with a connection that
  // ends here.
  void await_end(std::chrono::milliseconds longest);
  // A body as a whole; kCorrupt where it is longer than `most`.
  Expected<std::vector<std::byte>> receive_body(const Frame& frame, std::size_t most);
  Status receive(std::span<std::byte> to);
  // Into pages; seen(piece) for each piece as it lies there.
  template <typename F>
  Status receive_pages(std::span<std::byte> to, PageGuard& guard, F&& seen) {
    while (!to.empty()) {
      const auto moved = guard.with_pages([&]() -> Expected<std::size_t> {
        auto n = socket_.receive_some(to.first(std::min(to.size(), kPiece)));
        if (n.ok() && *n > 0) seen(to.first(*n));
        return n;
      });
      SHOAL_TRY(advance(moved, to, true));
    }
    return {};
  }

  Status send(wire::MessageType type, std::span<const std::byte> body = {});
  // An abort that tells the peer why, where it still listens.
  void say_why(std::string_view why);
  // A frame whose body of exactly `length` bytes comes in parts: the first with the frame's header, for what
  // is sent alone travels alone; the rest by put() and put_pages().
  Status begin_frame(wire::MessageType type, std::uint32_t length, std::span<const std::byte> first = {});
  Status put(std::span<const std::byte> bytes);
  // seen(piece) for each piece before it goes.
  template <typename F>
  Status put_pages(std::span<const std::byte> bytes, PageGuard& guard, F&& seen) {
    std::size_t known = 0;  // of the next bytes, those that were seen
    while (!bytes.empty()) {
      const auto moved = guard.with_pages([&]() -> Expected<std::size_t> {
        const auto piece = bytes.first(std::min(bytes.size(), kPiece));
        seen(piece.subspan(std::min(known, piece.size())));
        known = std::max(known, piece.size());
        const std::lock_guard lock(sending_);
        return socket_.send_some(piece);
      });
      if (moved.ok()) known -= *moved;
      SHOAL_TRY(advance(moved, bytes, false));
    }
    return {};
  }
  void end_frame() { in_frame_.store(false); }

  // For the opening, before anything else.
  comm::Socket& socket() { return socket_; }
  std::string peer() const { return socket_.peer(); }
  // Whether the peer is on this host.
  comm::Scope scope() const;

  void wake();
  // Says why, where that can be said at once, and ends every wait.
  void abort(std::string_view why);

 private:
  explicit RoomLink(comm::Socket socket, int wake) : socket_(std::move(socket)), wake_fd_(wake) {}
  // Until the socket can be read or written, or the silence is over; true where woken instead.
  Expected<bool> await(bool readable, bool wakes);
  Status await_bytes(bool readable);
  void beat();
  // After an attempt to move: consumes what was, or waits.
  template <typename Bytes>
  Status advance(const Expected<std::size_t>& moved, Bytes& bytes, bool readable) {
    if (!moved.ok()) return moved.error();
    bytes = bytes.subspan(*moved);
    if (*moved > 0) {
      (readable ? silent_ : stuck_) = {};
    } else {
      SHOAL_TRY(await_bytes(readable));
    }
    return {};
  }

  comm::Socket socket_;
  int wake_fd_;
  std::mutex sending_;
  std::atomic<bool> in_frame_{false};  // half of a frame may be out
  // Waited for since the last byte that came, and since the last that was taken.
  std::chrono::nanoseconds silent_{0};
  std::chrono::nanoseconds stuck_{0};
  TimePoint last_beat_{};
};

}  // namespace shoal::handover
