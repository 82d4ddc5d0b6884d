#include "gateway/prefill_leg.h"

#include <algorithm>
#include <utility>

#include "gateway/stream_event.h"
#include "wire/api_error.h"

namespace shoal::gateway {
namespace {

// A first token and its usage; an error's sentence.
constexpr std::size_t kMostBody = 4 * 1024 * 1024;
// Between the decode worker's last word and the prefill worker's: that the KV has landed.
constexpr std::chrono::seconds kFarewell{5};

}  // namespace

PrefillLeg::PrefillLeg(GatewayCore& core, WorkerPtr worker, double uncached_tokens, double pages)
    : core_(core),
      worker_(std::move(worker)),
      reservation_(core.registry.reserve(worker_, uncached_tokens, pages, now())),
      timer_(core.loop) {
  worker_->users.insert(this);
}

PrefillLeg::~PrefillLeg() {
  if (!ended_) leave();
}

void PrefillLeg::send(wire::HttpCall call, bool noted, Callbacks callbacks) {
  noted_ = noted;
  callbacks_ = std::move(callbacks);
  call_ = core_.client->start(
      std::move(call),
      {[self = shared_from_this()](int status, const wire::HeaderList& headers) {
         self->refusal_.status = status;
         for (const auto& [name, value] : headers) {
           if (name == "content-type") self->refusal_.content_type = value;
         }
         self->streams_ = status == 200 && self->refusal_.content_type.starts_with("text/event-stream");
       },
       [self = shared_from_this()](std::string_view bytes) { return !self->ended_ && self->on_data(bytes); },
       [self = shared_from_this()](const Status& status) { self->on_end(status); }});
}

void PrefillLeg::leave() {
  ended_ = true;
  worker_->users.erase(this);
  reservation_.release();
  timer_.cancel();
  if (call_ != nullptr) std::exchange(call_, nullptr)->cancel();
}

void PrefillLeg::cancel() {
  if (ended_) return;
  callbacks_ = {};
  leave();
  core_.registry.forgotten(worker_);
}

void PrefillLeg::let_go() {
  if (ended_) return;
  callbacks_ = {};
  timer_.start(kFarewell, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel();
  });
}

void PrefillLeg::on_worker_lost(const std::string& why) {
  finish(End::kLost, {ErrorCode::kUnavailable, why});
}

bool PrefillLeg::on_data(std::string_view bytes) {
  const auto self = shared_from_this();  // what an event leads to may let go of this leg
  if (!streams_) {
    refusal_.body += bytes.substr(0, kMostBody - std::min(kMostBody, refusal_.body.size()));
    return true;
  }
  if (splitter_.push(bytes, [this](std::string_view event) { return on_event(event); })) return true;
  if (!ended_) finish(End::kLost, {ErrorCode::kCorrupt, "its stream cannot be read, or is another answer's"});
  return false;
}

bool PrefillLeg::on_event(std::string_view event) {
  if (noted_ && event.starts_with(wire::kNotePrefix)) {
    const std::size_t line = event.find('\n') + 1;
    auto note = wire::InnerNote::parse(event.substr(0, line));
    if (!note) return false;
    if (note->kind == wire::InnerNote::Kind::kUsage) {
      usage_ = *std::move(note);
      return true;
    }
    if (note->kind == wire::InnerNote::Kind::kTokens && first_token_ == TimePoint{}) {
      first_token_ = now();
      reservation_.first_token();
    }
    // The decode worker says how the answer ends.
    if (note->kind == wire::InnerNote::Kind::kFinish || !callbacks_.on_event) return true;
    const auto told = callbacks_.on_event;  // what it does may end this leg
    return told(*note, event.substr(line)) && !ended_;
  }
  const std::string_view data = data_of(event);
  if (data == kDoneData) done_ = true;
  if (is_error(data)) error_ = wire::error_message_of(data);
  return true;
}

void PrefillLeg::on_end(const Status& status) {
  call_ = nullptr;
  if (ended_) return;
  if (!status.ok()) return finish(End::kLost, status);
  if (refusal_.status != 200)
    return finish(End::kRefused, {ErrorCode::kUnavailable, wire::error_message_of(refusal_.body)});
  if (!error_.empty()) return finish(End::kFailed, {ErrorCode::kUnavailable, error_});
  if (streams_ && noted_ && !done_)
    return finish(End::kLost, {ErrorCode::kUnavailable, "it ended its stream before the answer's end"});
  finish(End::kDone, {});
}

void PrefillLeg::finish(End end, const Status& why) {
  if (ended_) return;
  const auto self = shared_from_this();  // leave() may let go of the call's hold
  leave();
  const auto on_end = std::move(callbacks_.on_end);
  callbacks_ = {};
  if (end == End::kDone) {
    core_.registry.succeeded(worker_);
  } else if (end == End::kLost && on_end) {
    core_.registry.failed(worker_, now());
  } else {
    core_.registry.forgotten(worker_);
  }
  if (on_end) on_end(end, why);
}

}  // namespace shoal::gateway
