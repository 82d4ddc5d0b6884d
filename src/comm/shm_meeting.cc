#include "comm/shm_meeting.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "wire/cluster_token.h"

namespace shoal::comm {
namespace {

// Between two tries to find whoever hands the memory out.
constexpr std::chrono::milliseconds kRetry{20};

// One byte with a descriptor beside it.
struct DescriptorMessage {
  char byte = 1;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  DescriptorMessage() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
};

bool same_user(const Socket& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

}  // namespace

Expected<std::string> ShmHost::draw_name() {
  SHOAL_ASSIGN(nonce, wire::draw_nonce());
  return "shoal-" + wire::hex(nonce.data(), 16);
}

Expected<std::unique_ptr<ShmHost>> ShmHost::open(std::shared_ptr<ShmSegment> segment, std::string name) {
  SHOAL_ASSIGN(listener, Listener::open_abstract(name));
  std::unique_ptr<ShmHost> host(new ShmHost(name, std::move(segment), std::move(listener)));
  host->thread_ = std::thread([raw = host.get()] { raw->serve(); });
  return host;
}

ShmHost::~ShmHost() {
  listener_.shut_down();
  if (thread_.joinable()) thread_.join();
}

void ShmHost::serve() {
  for (;;) {
    auto socket = listener_.accept(now() + std::chrono::hours(1));
    if (!socket.ok()) {
      // Also where nobody could be taken for an hour; nothing but the destructor ends this.
      if (socket.error().code() == ErrorCode::kUnavailable) return;
      continue;
    }
    if (!same_user(*socket)) continue;
    DescriptorMessage message;
    cmsghdr* control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = segment_->fd();
    std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
    // One byte fits into any socket; a peer that has gone already is its own affair.
    (void)::sendmsg(socket->fd(), &message.header, MSG_NOSIGNAL);
  }
}

Expected<std::shared_ptr<ShmSegment>> attach_segment(const std::string& name, ShmLayout layout,
                                                     TimePoint deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path)
    return Status(ErrorCode::kCorrupt, "the head named no meeting point for shared memory");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Socket socket;
  for (;;) {
    socket = Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.open() && ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) == 0)
      break;
    if (!socket.open() || errno != ECONNREFUSED || now() + kRetry >= deadline)
      return Status(ErrorCode::kUnavailable,
                    fmt::format("the host's shared memory cannot be had: {}", std::strerror(errno)));
    std::this_thread::sleep_for(kRetry);
  }
  SHOAL_TRY(socket.await_readable(deadline));
  DescriptorMessage message;
  const ssize_t n = ::recvmsg(socket.fd(), &message.header, MSG_CMSG_CLOEXEC);
  const cmsghdr* control = n == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (control == nullptr || control->cmsg_type != SCM_RIGHTS)
    return Status(ErrorCode::kUnavailable, "this host's shared memory is not handed out to this process");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
  return ShmSegment::attach(fd, std::move(layout));
}

std::string host_identity() {
  std::string boot = "unknown";
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  struct stat info {};
  const bool known = ::stat("/proc/self/ns/net", &info) == 0;
  return fmt::format("{}:{}", boot, known ? info.st_ino : 0);
}

}  // namespace shoal::comm
