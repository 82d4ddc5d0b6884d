#include "comm/ucx_carrier.h"

#include <utility>

#include "comm/ucx_library.h"

#ifdef SHOAL_UCX

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>

namespace shoal::comm {
namespace {

// Between two looks at whether it is still worth waiting.
constexpr std::chrono::milliseconds kLook{100};

// A rank's messages to another are told apart by their number: they arrive where they are due.
ucp_tag_t tag_of(std::int32_t from, std::uint64_t number) {
  return static_cast<ucp_tag_t>(from) << 48 | (number & 0xffff'ffff'ffff);
}

struct Message {
  bool done = false;
  ucs_status_t status = UCS_OK;
  std::size_t length = 0;
  void* request = nullptr;
};

void sent(void*, ucs_status_t status, void* user) {
  auto& message = *static_cast<Message*>(user);
  message.status = status;
  message.done = true;
}
void received(void*, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user) {
  auto& message = *static_cast<Message*>(user);
  message.status = status;
  message.length = info->length;
  message.done = true;
}

}  // namespace

struct UcxCarrier::Impl {
  struct Peer {
    Socket socket;
    ucp_ep_h endpoint = nullptr;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  std::int32_t rank = 0;
  Options options;
  bool spinning = true;
  std::unique_ptr<UcxWorker> ucx;  // null once closed
  std::vector<Peer> peers;
  Status failed;
  std::deque<Message> messages;      // of the call at hand; places stay
  std::vector<std::byte> greetings;  // here, so that they are there while UCX is
  std::atomic<bool> aborted{false};
  std::mutex mutex;
  std::string reason;

  ~Impl() { close(); }

  Status unreached(const Status& why) const {
    return {
        ErrorCode::kUnavailable,
        fmt::format("--fabric {}: not every rank is reached over it ({}): name an interface of the network "
                    "that joins their hosts",
                    options.interface, why.message())};
  }

  // Over the mesh's connections: each sends its own, then takes the others'.
  Status exchange_addresses(TimePoint deadline) {
    SHOAL_ASSIGN(own, ucx->address());
    std::vector<std::byte> message(sizeof(std::uint64_t) + own.size());
    const std::uint64_t size = own.size();
    std::memcpy(message.data(), &size, sizeof size);
    std::memcpy(message.data() + sizeof size, own.data(), own.size());
    for (Peer& peer : peers) {
      if (peer.socket.open()) SHOAL_TRY(peer.socket.send(message, deadline));
    }
    for (Peer& peer : peers) {
      if (!peer.socket.open()) continue;
      std::uint64_t theirs = 0;
      SHOAL_TRY(peer.socket.receive(std::as_writable_bytes(std::span(&theirs, 1)), deadline));
      if (theirs == 0 || theirs > 64 * 1024)
        return {ErrorCode::kCorrupt, "a rank names an address of the fabric that is none"};
      std::vector<std::byte> address(static_cast<std::size_t>(theirs));
      SHOAL_TRY(peer.socket.receive(address, deadline));
      const auto endpoint = ucx->connect(address);
      if (!endpoint.ok()) return unreached(endpoint.error());
      peer.endpoint = *endpoint;
    }
    return {};
  }

  // A byte from each to each over the fabric: that two interfaces reach each other shows here, and what UCX
  // does at the first message is done. Nobody stops progressing while another still greets.
  Status greet(TimePoint deadline) {
    greetings.resize(2 * peers.size());
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (!peers[i].socket.open()) continue;
      out.push_back({static_cast<std::int32_t>(i), std::span(greetings).subspan(2 * i, 1)});
      in.push_back({static_cast<std::int32_t>(i), std::span(greetings).subspan(2 * i + 1, 1)});
    }
    if (const Status moved = move_all(out, in, deadline); !moved.ok()) return unreached(moved);
    std::byte greeted{};
    for (Peer& peer : peers) {
      if (peer.socket.open()) SHOAL_TRY(peer.socket.send(std::span(&greeted, 1), deadline));
    }
    std::vector<Socket*> silent;
    for (Peer& peer : peers) {
      if (peer.socket.open()) silent.push_back(&peer.socket);
    }
    for (;;) {
      while (ucx->progress()) {
      }
      // One that has said it may end at once: that is for the first transfer to find.
      std::vector<pollfd> waits;
      for (Socket*& each : silent) {
        SHOAL_ASSIGN(n, each->receive_some(std::span(&greeted, 1)));
        if (n == 0) {
          waits.push_back({each->fd(), POLLIN, 0});
        } else {
          each = nullptr;
        }
      }
      std::erase(silent, nullptr);
      if (silent.empty()) return {};
      SHOAL_TRY(sleep(deadline, waits));
    }
  }

  // Nothing of UCX touches any memory afterwards.
  void close() {
    if (ucx == nullptr) return;
    for (Message& message : messages) {
      if (!message.done && message.request != nullptr)
        ucx->api().request_cancel(ucx->worker(), message.request);
    }
    for (Peer& peer : peers) {
      if (peer.endpoint != nullptr) ucx->close(std::exchange(peer.endpoint, nullptr));
    }
    release_requests();
    ucx.reset();
  }

  void release_requests() {
    for (Message& message : messages) {
      if (message.request != nullptr) ucx->api().request_free(message.request);
    }
    messages.clear();
  }

  void tell_others(const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (reason.empty()) reason = why.empty() ? "aborted" : why;
    }
    aborted.store(true);
    for (const Peer& peer : peers) {
      if (peer.socket.open()) peer.socket.shut_down();
    }
  }

  Status aborted_status() {
    const std::lock_guard lock(mutex);
    return {ErrorCode::kUnavailable, reason};
  }

  // A request in flight, or done at once.
  void started(Message& message, ucs_status_ptr_t request, std::size_t length) {
    if (UCS_PTR_IS_PTR(request)) {
      message.request = request;
      return;
    }
    message.status = UCS_PTR_STATUS(request);
    message.length = message.status == UCS_OK ? length : 0;
    message.done = true;
  }

  void post(const Outgoing& out) {
    Peer& peer = peers[static_cast<std::size_t>(out.peer)];
    Message& message = messages.emplace_back();
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = sent;
    param.user_data = &message;
    started(message,
            ucx->api().tag_send_nbx(peer.endpoint, out.bytes.data(), out.bytes.size(),
                                    tag_of(rank, peer.sent++), &param),
            out.bytes.size());
  }
  void post(const Incoming& in) {
    Peer& peer = peers[static_cast<std::size_t>(in.peer)];
    Message& message = messages.emplace_back();
    ucp_request_param_t param{};
    // Always by the callback, which alone is told the length.
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv = received;
    param.user_data = &message;
    const auto request = ucx->api().tag_recv_nbx(ucx->worker(), in.bytes.data(), in.bytes.size(),
                                                 tag_of(in.peer, peer.received++), ~ucp_tag_t{0}, &param);
    started(message, request, 0);
  }

  Status move_all(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
    for (const Incoming& each : in) post(each);
    for (const Outgoing& each : out) post(each);
    SHOAL_TRY(await_all(deadline));
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      if (i < in.size() && (message.status == UCS_ERR_MESSAGE_TRUNCATED ||
                            (message.status == UCS_OK && message.length != in[i].bytes.size())))
        return {ErrorCode::kCorrupt,
                fmt::format("rank {} sent {} bytes where rank {} expected {}", in[i].peer,
                            message.status == UCS_OK ? fmt::to_string(message.length) : "more", rank,
                            in[i].bytes.size())};
      if (message.status != UCS_OK)
        return ucx->error(ErrorCode::kUnavailable, "a message over the fabric failed", message.status);
    }
    release_requests();
    return out.empty() ? Status() : flush(deadline);
  }

  // What UCX has taken and keeps would else go out with this rank's next call only, for which its peer may be
  // what it waits.
  Status flush(TimePoint deadline) {
    Message& message = messages.emplace_back();
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = sent;
    param.user_data = &message;
    started(message, ucx->api().worker_flush_nbx(ucx->worker(), &param), 0);
    SHOAL_TRY(await_all(deadline));
    if (message.status != UCS_OK)
      return ucx->error(ErrorCode::kUnavailable, "a message over the fabric failed", message.status);
    release_requests();
    return {};
  }

  Status await_all(TimePoint deadline) {
    const int looks = spinning ? options.looks : 0;
    int idle = 0;
    for (unsigned turn = 1; !std::ranges::all_of(messages, &Message::done); ++turn) {
      // A worker that is busy all the time still ends. Not at every turn: the clock is read.
      if (turn % 64 == 0) SHOAL_TRY(check(deadline));
      if (ucx->progress()) {
        idle = 0;
      } else if (++idle > looks) {
        SHOAL_TRY(sleep(deadline));
      }
    }
    return {};
  }

  Status check(TimePoint deadline) {
    if (aborted.load()) return aborted_status();
    if (options.stop && options.stop()) return {ErrorCode::kUnavailable, "interrupted"};
    if (now() >= deadline) return {ErrorCode::kDeadline, "a rank waited for another until its deadline"};
    return {};
  }

  // Until UCX has something to progress or a peer's connection ends.
  Status sleep(TimePoint deadline) {
    std::vector<pollfd> waits;
    for (const Peer& peer : peers) {
      if (peer.socket.open()) waits.push_back({peer.socket.fd(), POLLRDHUP, 0});
    }
    SHOAL_TRY(sleep(deadline, waits));
    const bool ended = std::ranges::any_of(
        waits, [](const pollfd& each) { return (each.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0; });
    if (!ended) return {};
    return aborted.load() ? aborted_status() : Status(ErrorCode::kUnavailable, "a rank closed its carrier");
  }
  // Until UCX has something to progress, or one of these its event.
  Status sleep(TimePoint deadline, std::vector<pollfd>& waits) {
    SHOAL_TRY(check(deadline));
    SHOAL_ASSIGN(quiet, ucx->arm());
    if (!quiet) return {};
    waits.push_back({ucx->events(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now());
    const auto time = std::clamp<std::chrono::milliseconds>(left, std::chrono::milliseconds(0), kLook);
    ::poll(waits.data(), waits.size(), static_cast<int>(time.count()));
    waits.pop_back();
    return {};
  }
};

bool UcxCarrier::built() { return true; }

UcxCarrier::UcxCarrier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UcxCarrier::~UcxCarrier() = default;

Expected<std::unique_ptr<UcxCarrier>> UcxCarrier::connect(std::int32_t rank, std::vector<Socket> mesh,
                                                          Options options, TimePoint deadline) {
  auto impl = std::make_unique<Impl>();
  SHOAL_ASSIGN(ucx, UcxWorker::open(options.interface, UCP_FEATURE_TAG));
  impl->ucx = std::move(ucx);
  impl->rank = rank;
  impl->options = std::move(options);
  impl->peers.resize(mesh.size());
  for (std::size_t i = 0; i < mesh.size(); ++i) {
    if (mesh[i].open()) mesh[i].probe_when_silent();
    impl->peers[i].socket = std::move(mesh[i]);
  }
  SHOAL_TRY(impl->exchange_addresses(deadline));
  SHOAL_TRY(impl->greet(deadline));
  impl->options.stop = {};
  return std::unique_ptr<UcxCarrier>(new UcxCarrier(std::move(impl)));
}

std::int32_t UcxCarrier::rank() const { return impl_->rank; }
std::int32_t UcxCarrier::ranks() const { return static_cast<std::int32_t>(impl_->peers.size()); }
void UcxCarrier::set_spinning(bool spinning) { impl_->spinning = spinning; }

Status UcxCarrier::transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
  Impl& impl = *impl_;
  if (impl.failed.ok() && impl.aborted.load()) impl.failed = impl.aborted_status();
  if (!impl.failed.ok()) return impl.failed;
  impl.failed = impl.move_all(out, in, deadline);
  if (!impl.failed.ok()) {
    impl.close();
    impl.tell_others(impl.failed.message());
  }
  return impl.failed;
}

void UcxCarrier::abort(const std::string& reason) { impl_->tell_others(reason); }

}  // namespace shoal::comm

#else

namespace shoal::comm {

struct UcxCarrier::Impl {};

bool UcxCarrier::built() { return false; }
UcxCarrier::UcxCarrier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UcxCarrier::~UcxCarrier() = default;
Expected<std::unique_ptr<UcxCarrier>> UcxCarrier::connect(std::int32_t, std::vector<Socket>, Options options,
                                                          TimePoint) {
  return check_fabric(options.interface);
}
std::int32_t UcxCarrier::rank() const { return 0; }
std::int32_t UcxCarrier::ranks() const { return 0; }
void UcxCarrier::set_spinning(bool) {}
Status UcxCarrier::transfer(std::span<const Outgoing>, std::span<const Incoming>, TimePoint) {
  return {ErrorCode::kUnsupported, "this build has no UCX"};
}
void UcxCarrier::abort(const std::string&) {}

}  // namespace shoal::comm

#endif
