#include "comm/ucx_carrier.h"

#include <utility>

#ifdef SHOAL_UCX

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>

namespace shoal::comm {
namespace {

// The functions of the library that are used here, found by name.
struct UcpApi {
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx = nullptr;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_cancel) request_cancel = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;

  // Never unloaded: it has left handlers behind.
  static Expected<const UcpApi*> get() {
    static const Expected<UcpApi> api = load();
    if (!api.ok()) return api.error();
    return &*api;
  }

 private:
  static Expected<UcpApi> load() {
    void* library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return Status(ErrorCode::kUnsupported,
                    "UCX is not installed here: install libucx0, or leave --fabric out");
    UcpApi api;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      all &= function != nullptr;
    };
    find(api.init_version, "ucp_init_version");
    find(api.cleanup, "ucp_cleanup");
    find(api.config_read, "ucp_config_read");
    find(api.config_modify, "ucp_config_modify");
    find(api.config_release, "ucp_config_release");
    find(api.worker_create, "ucp_worker_create");
    find(api.worker_destroy, "ucp_worker_destroy");
    find(api.worker_get_address, "ucp_worker_get_address");
    find(api.worker_release_address, "ucp_worker_release_address");
    find(api.worker_progress, "ucp_worker_progress");
    find(api.worker_get_efd, "ucp_worker_get_efd");
    find(api.worker_arm, "ucp_worker_arm");
    find(api.ep_create, "ucp_ep_create");
    find(api.ep_close_nbx, "ucp_ep_close_nbx");
    find(api.tag_send_nbx, "ucp_tag_send_nbx");
    find(api.tag_recv_nbx, "ucp_tag_recv_nbx");
    find(api.request_check_status, "ucp_request_check_status");
    find(api.request_cancel, "ucp_request_cancel");
    find(api.request_free, "ucp_request_free");
    find(api.status_string, "ucs_status_string");
    if (!all) return Status(ErrorCode::kUnsupported, "the UCX installed here is older than 1.10");
    return api;
  }
};

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
  const UcpApi* api = nullptr;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int events = -1;
  std::vector<Peer> peers;
  Status failed;
  std::deque<Message> messages;  // of the call at hand; places stay
  std::atomic<bool> aborted{false};
  std::mutex mutex;
  std::string reason;

  ~Impl() { close(); }

  Status error(ErrorCode code, const char* what, ucs_status_t status) const {
    return {code, fmt::format("{}: {}", what, api->status_string(status))};
  }

  Status open() {
    // UCX only warns, and takes another.
    const std::string device = options.interface.substr(0, options.interface.find(':'));
    const bool found = std::ranges::any_of(std::array{"net", "infiniband"}, [&](const char* kind) {
      std::error_code ignored;
      return std::filesystem::exists(fmt::format("/sys/class/{}/{}", kind, device), ignored);
    });
    if (device.empty() || device.find('/') != std::string::npos || !found)
      return {ErrorCode::kInvalidArgument,
              fmt::format("--fabric {}: there is no such interface here", options.interface)};
    ucp_config_t* config = nullptr;
    if (const auto status = api->config_read(nullptr, nullptr, &config); status != UCS_OK)
      return error(ErrorCode::kUnsupported, "UCX cannot be configured", status);
    const auto named = api->config_modify(config, "NET_DEVICES", options.interface.c_str());
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    const auto made =
        named != UCS_OK ? named : api->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
    api->config_release(config);
    if (made != UCS_OK)
      return error(ErrorCode::kInvalidArgument, fmt::format("--fabric {}", options.interface).c_str(), made);
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
    if (const auto status = api->worker_create(context, &worker_params, &worker); status != UCS_OK)
      return error(ErrorCode::kInvalidArgument,
                   fmt::format("--fabric {}: no way to send there", options.interface).c_str(), status);
    if (const auto status = api->worker_get_efd(worker, &events); status != UCS_OK)
      return error(ErrorCode::kUnsupported, "UCX cannot be slept on", status);
    return {};
  }

  // Over the mesh's connections: each sends its own, then takes the others'.
  Status exchange_addresses(TimePoint deadline) {
    ucp_address_t* own = nullptr;
    std::size_t length = 0;
    if (const auto status = api->worker_get_address(worker, &own, &length); status != UCS_OK)
      return error(ErrorCode::kUnsupported, "UCX gives no address", status);
    std::vector<std::byte> message(sizeof(std::uint64_t) + length);
    const std::uint64_t size = length;
    std::memcpy(message.data(), &size, sizeof size);
    std::memcpy(message.data() + sizeof size, own, length);
    api->worker_release_address(worker, own);
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
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
      // Its messages' status says it.
      params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
      params.address = reinterpret_cast<const ucp_address_t*>(address.data());
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      if (const auto status = api->ep_create(worker, &params, &peer.endpoint); status != UCS_OK)
        return error(ErrorCode::kUnavailable, "a rank cannot be reached over the fabric", status);
    }
    // Nobody leaves while another still connects to it.
    std::byte connected{};
    for (Peer& peer : peers) {
      if (peer.socket.open()) SHOAL_TRY(peer.socket.send(std::span(&connected, 1), deadline));
    }
    for (Peer& peer : peers) {
      if (peer.socket.open()) SHOAL_TRY(peer.socket.receive(std::span(&connected, 1), deadline));
    }
    return {};
  }

  // Nothing of UCX touches any memory afterwards.
  void close() {
    if (api == nullptr) return;
    for (Message& message : messages) {
      if (!message.done && message.request != nullptr) api->request_cancel(worker, message.request);
    }
    for (Peer& peer : peers) {
      if (peer.endpoint == nullptr) continue;
      ucp_request_param_t force{};
      force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      force.flags = UCP_EP_CLOSE_FLAG_FORCE;
      void* closing = api->ep_close_nbx(peer.endpoint, &force);
      peer.endpoint = nullptr;
      if (!UCS_PTR_IS_PTR(closing)) continue;
      // A forced close waits for nobody; one that does all the same goes with the worker.
      const TimePoint end = now() + std::chrono::seconds(1);
      while (api->request_check_status(closing) == UCS_INPROGRESS && now() < end)
        api->worker_progress(worker);
      api->request_free(closing);
    }
    release_requests();
    if (worker != nullptr) api->worker_destroy(worker);
    if (context != nullptr) api->cleanup(context);
    worker = nullptr;
    context = nullptr;
  }

  void release_requests() {
    for (Message& message : messages) {
      if (message.request != nullptr) api->request_free(message.request);
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
            api->tag_send_nbx(peer.endpoint, out.bytes.data(), out.bytes.size(), tag_of(rank, peer.sent++),
                              &param),
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
    const auto request = api->tag_recv_nbx(worker, in.bytes.data(), in.bytes.size(),
                                           tag_of(in.peer, peer.received++), ~ucp_tag_t{0}, &param);
    started(message, request, 0);
  }

  Status move_all(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
    for (const Incoming& each : in) post(each);
    for (const Outgoing& each : out) post(each);
    int idle = 0;
    for (unsigned turn = 1; !std::ranges::all_of(messages, &Message::done); ++turn) {
      // A worker that is busy all the time still ends. Not at every turn: the clock is read.
      if (turn % 64 == 0) SHOAL_TRY(check(deadline));
      if (api->worker_progress(worker) != 0) {
        idle = 0;
      } else if (++idle > options.looks) {
        SHOAL_TRY(sleep(deadline));
      }
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      if (i < in.size() && (message.status == UCS_ERR_MESSAGE_TRUNCATED ||
                            (message.status == UCS_OK && message.length != in[i].bytes.size())))
        return {ErrorCode::kCorrupt,
                fmt::format("rank {} sent {} bytes where rank {} expected {}", in[i].peer,
                            message.status == UCS_OK ? fmt::to_string(message.length) : "more", rank,
                            in[i].bytes.size())};
      if (message.status != UCS_OK)
        return error(ErrorCode::kUnavailable, "a message over the fabric failed", message.status);
    }
    release_requests();
    return {};
  }

  Status check(TimePoint deadline) {
    if (aborted.load()) return aborted_status();
    if (now() >= deadline) return {ErrorCode::kDeadline, "a rank waited for another until its deadline"};
    return {};
  }

  // Until UCX or a peer's connection has something to say.
  Status sleep(TimePoint deadline) {
    SHOAL_TRY(check(deadline));
    const auto armed = api->worker_arm(worker);
    if (armed == UCS_ERR_BUSY) return {};
    if (armed != UCS_OK)
      return error(ErrorCode::kUnavailable, "the fabric's events cannot be awaited", armed);
    std::vector<pollfd> waits = {{events, POLLIN, 0}};
    for (const Peer& peer : peers) {
      if (peer.socket.open()) waits.push_back({peer.socket.fd(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
    ::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 100)));
    // Nobody writes there after the start: what can be read is the end.
    for (std::size_t i = 1; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      return aborted.load() ? aborted_status() : Status(ErrorCode::kUnavailable, "a rank closed its carrier");
    }
    return {};
  }
};

bool UcxCarrier::built() { return true; }

UcxCarrier::UcxCarrier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UcxCarrier::~UcxCarrier() = default;

Expected<std::unique_ptr<UcxCarrier>> UcxCarrier::connect(std::int32_t rank, std::vector<Socket> mesh,
                                                          Options options, TimePoint deadline) {
  auto impl = std::make_unique<Impl>();
  SHOAL_ASSIGN(api, UcpApi::get());
  impl->api = api;
  impl->rank = rank;
  impl->options = std::move(options);
  impl->peers.resize(mesh.size());
  for (std::size_t i = 0; i < mesh.size(); ++i) impl->peers[i].socket = std::move(mesh[i]);
  SHOAL_TRY(impl->open());
  SHOAL_TRY(impl->exchange_addresses(deadline));
  return std::unique_ptr<UcxCarrier>(new UcxCarrier(std::move(impl)));
}

std::int32_t UcxCarrier::rank() const { return impl_->rank; }
std::int32_t UcxCarrier::ranks() const { return static_cast<std::int32_t>(impl_->peers.size()); }

Status UcxCarrier::transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
  Impl& impl = *impl_;
  if (impl.failed.ok() && impl.aborted.load()) impl.failed = impl.aborted_status();
  if (impl.failed.ok() && impl.worker == nullptr) impl.failed = {ErrorCode::kUnavailable, "closed"};
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
Expected<std::unique_ptr<UcxCarrier>> UcxCarrier::connect(std::int32_t, std::vector<Socket>, Options,
                                                          TimePoint) {
  return Status(ErrorCode::kUnsupported,
                "this build has no UCX: build with libucx-dev installed, or leave --fabric out");
}
std::int32_t UcxCarrier::rank() const { return 0; }
std::int32_t UcxCarrier::ranks() const { return 0; }
Status UcxCarrier::transfer(std::span<const Outgoing>, std::span<const Incoming>, TimePoint) {
  return {ErrorCode::kUnsupported, "this build has no UCX"};
}
void UcxCarrier::abort(const std::string&) {}

}  // namespace shoal::comm

#endif
