#include "handover/call_port.h"

#include <utility>

#include "comm/control_link.h"
#include "core/log.h"

namespace shoal::handover {
namespace {

constexpr std::chrono::seconds kOpeningTime{5};

}  // namespace

Expected<std::unique_ptr<CallPort>> CallPort::start(const comm::Endpoint& listen,
                                                    std::shared_ptr<const wire::ClusterToken> token,
                                                    Handler handler) {
  SHOAL_ASSIGN(listener, comm::Listener::open(listen.host, listen.port));
  std::unique_ptr<CallPort> port(new CallPort(std::move(listener), std::move(token), std::move(handler)));
  port->acceptor_ = std::thread([raw = port.get()] { raw->accept(); });
  return port;
}

CallPort::CallPort(comm::Listener listener, std::shared_ptr<const wire::ClusterToken> token, Handler handler)
    : listener_(std::move(listener)), token_(std::move(token)), handler_(std::move(handler)) {}

CallPort::~CallPort() {
  listener_.shut_down();
  if (acceptor_.joinable()) acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (RoomLink* link : links_) link->abort("the prefill worker is shutting down");
  }
  threads_.stop();
}

void CallPort::accept() {
  for (;;) {
    auto socket = listener_.accept(now() + std::chrono::hours(1));
    if (!socket.ok()) {
      if (socket.error().code() == ErrorCode::kDeadline) continue;
      return;
    }
    auto made = RoomLink::make(*std::move(socket));
    if (!made.ok()) continue;
    const std::shared_ptr<RoomLink> link = *std::move(made);
    {
      const std::lock_guard lock(mutex_);
      if (links_.size() >= kMostCallers) {
        link->abort("as many handovers are being served as may be");
        continue;
      }
      // A caller that holds the token needs a moment: whoever has been at it longest is none.
      if (openings_.size() >= kMostOpenings) {
        openings_.front()->abort("too many connections are in their opening");
        openings_.pop_front();
      }
      openings_.push_back(link.get());
      links_.insert(link.get());
    }
    if (threads_.run([this, link] { answer(*link); })) continue;
    const std::lock_guard lock(mutex_);
    openings_.remove(link.get());
    links_.erase(link.get());
  }
}

void CallPort::answer(RoomLink& link) {
  // However it ends: the link is not aborted any more once it is gone.
  struct Leaving {
    CallPort& port;
    RoomLink& link;
    ~Leaving() {
      const std::lock_guard lock(port.mutex_);
      port.openings_.remove(&link);
      port.links_.erase(&link);
    }
  } leaving{*this, link};
  if (const Status status = open(link); !status.ok())
    log(LogLevel::kWarn, "handover.stranger", "reason=\"{}\"", status.message());
}

Status CallPort::open(RoomLink& link) {
  SHOAL_TRY(comm::open_as_callee(link.socket(), *token_, wire::LinkPurpose::kHandover, now() + kOpeningTime));
  SHOAL_ASSIGN(frame, link.await_frame());
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return {};
    openings_.remove(&link);
  }
  if (!frame) return {ErrorCode::kCorrupt, "the caller does not say what it wants"};
  return handler_(link, *frame);
}

}  // namespace shoal::handover
