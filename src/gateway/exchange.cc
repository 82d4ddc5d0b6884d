#include "gateway/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "core/log.h"
#include "wire/api_error.h"
#include "wire/inner_note.h"
#include "wire/openai_response.h"

namespace shoal::gateway {
namespace {

// Of this hop alone, or the gateway's own to say.
constexpr std::array<std::string_view, 18> kNotForwarded = {"connection",
                                                            "host",
                                                            "content-length",
                                                            "transfer-encoding",
                                                            "keep-alive",
                                                            "te",
                                                            "trailer",
                                                            "upgrade",
                                                            "proxy-authorization",
                                                            "proxy-authenticate",
                                                            "proxy-connection",
                                                            "expect",
                                                            "accept-encoding",
                                                            "x-request-id",
                                                            "x-shoal-inner",
                                                            "x-shoal-answer",
                                                            "x-shoal-route",
                                                            "traceparent"};

bool forwarded(std::string_view name) {
  return std::ranges::find(kNotForwarded, name) == kNotForwarded.end();
}

bool generates(std::string_view path) { return path == "/v1/chat/completions" || path == "/v1/completions"; }

}  // namespace

Exchange::Exchange(GatewayCore& core, wire::HttpRequest request, wire::ResponsePtr response,
                   std::shared_ptr<const Tenant> tenant)
    : core_(core),
      request_(std::move(request)),
      response_(std::move(response)),
      tenant_(std::move(tenant)),
      retry_timer_(core.loop),
      stall_timer_(core.loop) {}

void Exchange::start(GatewayCore& core, wire::HttpRequest request, wire::ResponsePtr response,
                     std::shared_ptr<const Tenant> tenant) {
  core.metrics.received();
  core.retries.request();
  const auto self =
      std::make_shared<Exchange>(core, std::move(request), std::move(response), std::move(tenant));
  core.exchanges.emplace(self.get(), self);
  if (const Status status = self->read(); !status.ok()) {
    self->response_->respond(wire::error_reply(status));
    self->end(status.code() == ErrorCode::kExhausted ? Ending::kOverloaded : Ending::kRejected,
              wire::http_status(status.code()));
    return;
  }
  // Weak: the response owns the callback.
  self->response_->on_disconnect([weak = self->weak_from_this()] {
    if (const auto exchange = weak.lock()) exchange->client_gone();
  });
  if (!self->ended_) self->wait_for_place();
}

Status Exchange::read() {
  generates_ = generates(request_.path);
  route_asked_ = request_.header("x-shoal-route").has_value();
  trace_ = TraceContext::continued(request_.header("traceparent").value_or(""));
  auto facts = read_facts(request_.body);
  if (facts.ok()) {
    facts_ = *std::move(facts);
  } else if (generates_ || request_.header("content-type").value_or("").starts_with("application/json")) {
    return facts.error();
  }
  model_ = facts_.model;
  if (const auto alias = core_.options.aliases.find(model_); alias != core_.options.aliases.end())
    model_ = alias->second;
  const ModelWorkers& serving = core_.registry.serving(model_);
  const bool permitted =
      tenant_ == nullptr || model_.empty() || tenant_->may_use(facts_.model) || tenant_->may_use(model_);
  if (!model_.empty() && (serving.all.empty() || !permitted))
    return {ErrorCode::kNotFound, fmt::format("the model '{}' is not served here", facts_.model), "model"};
  if (model_.empty() && tenant_ != nullptr && !tenant_->models.empty())
    return {ErrorCode::kInvalidArgument, "model must be named: this key is for some models alone", "model"};
  if (facts_.has_rooms && generates_ && !serving.prefill.empty())
    return {ErrorCode::kInvalidArgument, "bootstrap_room and its fields are this gateway's to set",
            "bootstrap_room"};
  auto place = core_.queue.admit(tenant_);
  if (!place.ok()) return place.error();
  place_ = *std::move(place);
  profile_ =
      core_.profiler.profile(model_ + request_.path, tenant_ == nullptr ? "" : tenant_->name, facts_.size);
  if (generates_) {
    if (!facts_.has_seed) seed_field_ = fmt::format("\"seed\":{}", core_.random() >> 11);
    answer_id_ = fmt::format("{:016x}{:016x}-{}", core_.random(), core_.random(), std::time(nullptr));
  }
  return {};
}

void Exchange::wait_for_place() {
  waiting_ = core_.queue.enter(now(), [weak = weak_from_this()](const Status& status, Ticket ticket) {
    const auto self = weak.lock();
    if (self == nullptr || self->ended_) return;
    self->waiting_ = 0;
    if (!status.ok()) {
      self->response_->respond(wire::error_reply(status));
      self->end(Ending::kOverloaded, 429);
      return;
    }
    self->ticket_ = std::move(ticket);
    self->admitted_ = now();
    self->try_worker();
  });
}

void Exchange::try_worker() {
  const auto route = choose();
  if (!route) {
    no_worker();
    return;
  }
  homeless_since_ = {};
  send_to(*route);
}

void Exchange::send_to(const Route& route) {
  ++attempts_;
  core_.metrics.routed(policy::name_of(route.reason));
  attempt_ = Attempt();
  attempt_.number = ++attempt_number_;
  attempt_.route = route;
  attempt_.worker = core_.registry.at(route.worker.worker);
  const double answer_pages = policy::pages_of(profile_.input_tokens + profile_.output_p50 * facts_.choices);
  attempt_.reservation = core_.registry.reserve(
      attempt_.worker, route.prefill ? 0 : profile_.uncached_tokens(), answer_pages, now());
  attempt_.worker->users.insert(this);
  attempt_.sent = last_data_ = now();
  attempt_.continues = goes_on();
  // What an attempt before it has noted, and not sent, is no measure for one that begins anew.
  if (!attempt_.continues) ledger_.reset();
  // Ids are of use where a stream can be gone on with; what is not streamed is asked anew.
  if (generates_ && facts_.stream && attempt_.worker->resumes() && !ledger_) ledger_.emplace(facts_.choices);
  if (route.prefill) start_prefill();
  const auto current = [weak = weak_from_this(), number = attempt_.number]() -> std::shared_ptr<Exchange> {
    auto self = weak.lock();
    return self != nullptr && !self->ended_ && self->attempt_.number == number ? self : nullptr;
  };
  attempt_.call = core_.client->start(call_for(*attempt_.worker),
                                      {[current](int status, const wire::HeaderList& headers) {
                                         if (const auto self = current()) self->on_head(status, headers);
                                       },
                                       [current](std::string_view bytes) {
                                         const auto self = current();
                                         return self != nullptr && self->on_data(bytes);
                                       },
                                       [current](const Status& status) {
                                         if (const auto self = current()) self->on_end(status);
                                       }});
  if (facts_.stream && attempts_ == 1) watch_stall();
}

wire::HttpCall Exchange::call_for(const Worker& worker) const {
  wire::HttpCall call;
  call.url = worker.url;
  call.url.path += request_.target.starts_with('/') ? request_.target : request_.path;
  call.method = request_.method;
  call.idle_timeout = call.deadline = core_.options.deadline;
  for (const auto& [name, value] : request_.headers) {
    const bool key = name == "authorization" && (tenant_ != nullptr || !core_.options.worker_api_key.empty());
    if (forwarded(name) && !key) call.headers.emplace_back(name, value);
  }
  if (!core_.options.worker_api_key.empty())
    call.headers.emplace_back("authorization", "Bearer " + core_.options.worker_api_key);
  call.headers.emplace_back("x-request-id", request_.request_id);
  call.headers.emplace_back("traceparent", trace_.traceparent());
  if (generates_ && worker.resumes()) {
    call.headers.emplace_back(wire::kAnswerHeader, answer_id_);
    if (ledger_) call.headers.emplace_back(wire::kInnerHeader, "1");
  }
  call.body = body_for(worker);
  return call;
}

std::string Exchange::body_for(const Worker& worker) const {
  std::string fields;
  if (generates_ && worker.resumes()) {
    fields = seed_field_;
    if (goes_on()) fields += (fields.empty() ? "" : ",") + ledger_->resume_field();
  }
  if (attempt_.leg != nullptr) fields += (fields.empty() ? "" : ",") + room_fields(*attempt_.leg->worker());
  std::string body = with_fields(request_.body, fields);
  if (model_ != facts_.model) body = with_text_replaced(body, "model", model_);
  return body;
}

void Exchange::watch_stall() {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(last_data_ + core_.options.stall - now());
  stall_timer_.start(std::max(left, std::chrono::milliseconds(1)), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->ended_) return;
    const bool reading = self->attempt_.first_seen && self->attempt_.call != nullptr &&
                         self->response_->backlog() <= self->core_.options.backlog_low;
    const double silent = seconds_between(self->last_data_, now());
    // Before the first token it may wait its turn at the worker, whose reports say whether that moves.
    if (!reading) self->last_data_ = now();
    if (reading && now() - self->last_data_ >= self->core_.options.stall) {
      self->last_data_ = now();
      self->watch_stall();
      const std::string why = fmt::format("it has sent nothing for {:.0f} s", silent);
      // A prefill worker's first token has been seen, and the decode worker may wait for the rest of its KV.
      if (self->attempt_.leg != nullptr && self->attempt_.first_token == TimePoint{})
        return self->pair_failed({ErrorCode::kUnavailable, why});
      self->on_worker_lost(why);
      return;
    }
    self->watch_stall();
  });
}

void Exchange::on_worker_lost(const std::string& why) {
  if (ended_ || attempt_.worker == nullptr) return;
  if (attempt_.done) {
    finish_stream();
    return;
  }
  worker_failed({ErrorCode::kUnavailable, why});
}

void Exchange::leave_worker() {
  leave_pair();
  if (attempt_.call != nullptr) attempt_.call->cancel();
  attempt_.call = nullptr;
  const WorkerPtr worker = std::move(attempt_.worker);
  attempt_.worker = nullptr;
  if (worker != nullptr) {
    worker->users.erase(this);
    if (!std::exchange(attempt_.judged, true)) core_.registry.forgotten(worker);
  }
  attempt_.reservation.release();
}

void Exchange::worker_failed(const Status& why) {
  const WorkerPtr worker = attempt_.worker;
  const bool resumable = ledger_.has_value() && worker->resumes();
  if (goes_on() && fingerprint_.empty()) fingerprint_ = worker->report ? worker->report->fingerprint : "";
  log(LogLevel::kWarn, "request.worker_lost", "id={} trace={} worker={} tokens={} why=\"{}\"",
      request_.request_id, trace_.trace_id, worker->name, ledger_ ? ledger_->tokens() : events_,
      why.message());
  attempt_.judged = true;
  core_.registry.failed(worker, now());
  if (attempt_.status == 0) core_.registry.mistrust(worker, why);
  leave_worker();
  tried_.push_back(worker);
  give_up_or_go_on(resumable, "lost", why);
}

// After a loss. resumable: those that were to answer give ids.
void Exchange::give_up_or_go_on(bool resumable, const char* cause, const Status& why) {
  if (begun_ && !resumable) {
    core_.metrics.continued(false);
    fail({ErrorCode::kUnavailable,
          fmt::format(
              "the engine behind this gateway was lost in the middle of the answer ({}); it gives no token "
              "ids, so that no other can go on with it",
              why.message())});
    return;
  }
  if (aborted_) return fail({ErrorCode::kCancelled, "the request was aborted"});
  if (!may_try_again()) {
    if (goes_on()) core_.metrics.continued(false);
    fail({ErrorCode::kUnavailable,
          fmt::format("{} workers have failed this request; the last one: {}", attempts_, why.message())});
    return;
  }
  core_.metrics.retried(cause);
  try_again(attempts_ == 1);
}

void Exchange::worker_refused() {
  const WorkerPtr worker = attempt_.worker;
  const int status = attempt_.status;
  // Of a pair nobody knows whose fault it is; but who is full says so of itself.
  if (attempt_.leg != nullptr && status != 429 && !own_fault(status, attempt_.body))
    return pair_failed({ErrorCode::kUnavailable, wire::error_message_of(attempt_.body)});
  refusal_ = wire::HttpReply{status, attempt_.content_type, std::move(attempt_.body), attempt_.headers};
  if (status == 500 || status == 502 || status == 504) {
    attempt_.judged = true;
    core_.registry.failed(worker, now());
  }
  leave_worker();
  refused_by(worker);
}

// refusal_ says how.
void Exchange::refused_by(const WorkerPtr& worker) {
  tried_.push_back(worker);
  if (may_try_again() && core_.retries.take(now())) {
    core_.metrics.retried("refused");
    try_again(false);
    return;
  }
  if (begun_) {
    core_.metrics.continued(false);
    fail({ErrorCode::kUnavailable,
          "no other worker could go on with the answer: " + wire::error_message_of(refusal_->body)});
    return;
  }
  wire::HeaderList headers = extra_headers();
  headers.insert(headers.end(), refusal_->headers.begin(), refusal_->headers.end());
  response_->respond(refusal_->status, refusal_->content_type, refusal_->body, headers);
  end(Ending::kFailed, refusal_->status);
}

void Exchange::try_again(bool at_once) {
  const auto pause = at_once ? std::chrono::milliseconds(0) : policy::backoff(attempts_ - 1, core_.random());
  retry_timer_.start(pause, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && !self->ended_) self->try_worker();
  });
}

void Exchange::no_worker() {
  if (homeless_since_ == TimePoint{}) homeless_since_ = now();
  if (now() - homeless_since_ < core_.options.worker_patience && !aborted_ &&
      !core_.registry.serving(model_).all.empty()) {
    retry_timer_.start(std::chrono::milliseconds(50), [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self != nullptr && !self->ended_) self->try_worker();
    });
    return;
  }
  if (goes_on()) core_.metrics.continued(false);
  fail({ErrorCode::kUnavailable, why_nobody()});
}

bool Exchange::abort(const std::string& rid, bool all) {
  if (ended_ || !(all || (!rid.empty() && facts_.rid == rid))) return false;
  aborted_ = true;
  if (attempt_.worker != nullptr) return false;
  fail({ErrorCode::kCancelled, "the request was aborted"});
  return true;
}

void Exchange::client_gone() {
  if (ended_) return;
  end(Ending::kClientGone, 499);
}

void Exchange::fail(const Status& why) {
  if (begun_) {
    wire::append_sse_error(why, out_);
    response_->write(out_);
    out_.clear();
    response_->end();
  } else {
    wire::HttpReply reply = wire::error_reply(why);
    for (auto& header : extra_headers()) reply.headers.push_back(std::move(header));
    response_->respond(reply);
  }
  end(Ending::kFailed, wire::http_status(why.code()));
}

void Exchange::end(Ending ending, int status) {
  if (ended_) return;
  ended_ = true;
  const WorkerPtr worker = attempt_.worker != nullptr ? attempt_.worker
                           : tried_.empty()           ? nullptr
                                                      : tried_.back();
  leave_worker();
  if (waiting_ != 0) core_.queue.leave(waiting_);
  retry_timer_.cancel();
  stall_timer_.cancel();
  const double seconds = seconds_between(arrived_, now());
  core_.metrics.ended(ending);
  if (ending == Ending::kAnswered) core_.metrics.finished(seconds);
  // Of what came whole nobody knows when its first token was there.
  const std::string first =
      first_token_seen_ ? fmt::format("{:.1f}", 1e3 * seconds_between(arrived_, first_sent_)) : "-";
  log(LogLevel::kInfo, "request.ended",
      "id={} trace={} tenant={} model={} path={} worker={} prefill={} how={} status={} attempts={} in={} "
      "out={} ttft_ms={} ms={:.1f}",
      request_.request_id, trace_.trace_id, tenant_ == nullptr ? "-" : tenant_->name, model_, request_.path,
      worker == nullptr ? "-" : worker->name, prefill_name_.empty() ? "-" : prefill_name_, name_of(ending),
      status, attempts_, input_tokens_, output_tokens_, first, 1e3 * seconds);
  const auto self = shared_from_this();
  core_.exchanges.erase(this);
  // Last: the place may go to a request that begins here and now.
  ticket_.release();
}

}  // namespace shoal::gateway
