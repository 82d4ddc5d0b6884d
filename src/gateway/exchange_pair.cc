// A request that two workers answer: both legs are sent at once, and whatever ends one ends the other by its
// rooms.

#include <fmt/format.h>

#include <utility>

#include "core/log.h"
#include "gateway/exchange.h"
#include "wire/api_error.h"
#include "wire/inner_note.h"
#include "wire/json.h"
#include "wire/json_writer.h"

namespace shoal::gateway {
namespace {

constexpr std::uint16_t kUsualBootstrapPort = 8998;

// By which a plain engine is asked to end it.
std::string rid_of(std::uint64_t room) { return fmt::format("shoal-{:016x}", room); }

void append_rooms(std::string& out, std::span<const std::uint64_t> rooms) {
  out += "\"bootstrap_room\":";
  if (rooms.size() == 1) {
    out += std::to_string(rooms.front());
    return;
  }
  out += fmt::format("[{}]", fmt::join(rooms, ","));
}

}  // namespace

void Exchange::start_prefill() {
  const WorkerPtr prefill = core_.registry.at(attempt_.route.prefill->worker);
  prefill_name_ = prefill->name;
  attempt_.rooms.resize(static_cast<std::size_t>(facts_.choices));
  for (std::uint64_t& room : attempt_.rooms) room = core_.draw_room();
  core_.pairs.sent(prefill->id, attempt_.worker->id, now());
  attempt_.leg = std::make_shared<PrefillLeg>(core_, prefill, profile_.uncached_tokens(),
                                              policy::pages_of(profile_.input_tokens));
  const auto current = [weak = weak_from_this(), number = attempt_.number]() -> std::shared_ptr<Exchange> {
    auto self = weak.lock();
    return self != nullptr && !self->ended_ && self->attempt_.number == number ? self : nullptr;
  };
  attempt_.leg->send(call_for(*prefill), ledger_.has_value(),
                     {[current](const wire::InnerNote& note, std::string_view event) {
                        const auto self = current();
                        return self != nullptr && self->on_prefill_event(note, event);
                      },
                      [current](PrefillLeg::End end, const Status& why) {
                        if (const auto self = current()) self->on_prefill_end(end, why);
                      }});
}

std::string Exchange::room_fields(const Worker& prefill) const {
  std::string fields = "\"bootstrap_host\":";
  wire::append_json_string(fields, prefill.url.host);
  fields += fmt::format(",\"bootstrap_port\":{},",
                        prefill.bootstrap_port == 0 ? kUsualBootstrapPort : prefill.bootstrap_port);
  std::span<const std::uint64_t> rooms = attempt_.rooms;
  // SGLang counts on from a prompt's room for its further choices.
  if (prefill.plain) rooms = rooms.first(static_cast<std::size_t>(std::max(1, facts_.prompts)));
  append_rooms(fields, rooms);
  if (prefill.plain && facts_.rid.empty()) fields += fmt::format(",\"rid\":\"{}\"", rid_of(rooms.front()));
  return fields;
}

// False: it says something else than what has been forwarded.
bool Exchange::on_prefill_event(const wire::InnerNote& note, std::string_view event) {
  last_data_ = now();
  attempt_.first_seen = true;
  if (!ledger_) return true;
  if (forward(note, event) == StreamLedger::Verdict::kContradicts) return false;
  flush();
  return !ended_;
}

void Exchange::on_prefill_end(PrefillLeg::End how, const Status& why) {
  // Once the decode worker goes on, the KV is there.
  if (how == PrefillLeg::End::kDone || attempt_.first_token != TimePoint{} || attempt_.done || aborted_)
    return;
  const WorkerPtr prefill = attempt_.leg->worker();
  const PrefillLeg::Refusal refusal = attempt_.leg->refusal();
  if (how == PrefillLeg::End::kFailed ||
      (how == PrefillLeg::End::kRefused && !own_fault(refusal.status, refusal.body) &&
       (refusal.status >= 499 || blames_room(refusal.body))))
    return pair_failed(why);
  const WorkerPtr decode = attempt_.worker;
  const bool resumable = ledger_.has_value() && decode->resumes();
  if (how == PrefillLeg::End::kLost) {
    log(LogLevel::kWarn, "request.prefill_lost", "id={} trace={} prefill={} decode={} why=\"{}\"",
        request_.request_id, trace_.trace_id, prefill->name, decode->name, why.message());
    if (refusal.status == 0) core_.registry.mistrust(prefill, why);
    leave_worker();
    tried_.push_back(prefill);
    kept_decode_ = decode;
    return give_up_or_go_on(resumable, "lost", why);
  }
  leave_worker();
  refusal_ = wire::HttpReply{refusal.status, refusal.content_type, refusal.body, {}};
  if (refusal.status >= 500) core_.registry.failed(prefill, now());
  if (refusal.status == 408 || refusal.status == 429 || refusal.status >= 500 || begun_)
    return refused_by(prefill);
  // The client's own mistake, in the worker's words.
  response_->respond(refusal.status, refusal.content_type, refusal.body, extra_headers());
  end(Ending::kAnswered, refusal.status);
}

bool Exchange::own_fault(int status, std::string_view body) {
  return (status == 500 || status == 502 || status == 504) && !blames_room(body);
}

bool Exchange::blames_room(std::string_view body) {
  const auto document = wire::JsonDocument::parse(body);
  std::string_view field;
  return document.ok() && document->root()["error"]["param"].get_string().get(field) == simdjson::SUCCESS &&
         field.starts_with("bootstrap_");
}

// The handover went wrong, or one of the two and nobody knows which: both are avoided, neither is blamed.
void Exchange::pair_failed(const Status& why) {
  const WorkerPtr prefill = attempt_.leg->worker();
  const WorkerPtr decode = attempt_.worker;
  const bool resumable = ledger_.has_value() && decode->resumes();
  if (goes_on() && fingerprint_.empty()) fingerprint_ = decode->report ? decode->report->fingerprint : "";
  log(LogLevel::kWarn, "request.pair_failed", "id={} trace={} prefill={} decode={} why=\"{}\"",
      request_.request_id, trace_.trace_id, prefill->name, decode->name, why.message());
  attempt_.pair_judged = true;
  if (core_.pairs.failed(prefill->id, decode->id, now()))
    log(LogLevel::kWarn, "breaker.opened", "prefill={} decode={}", prefill->name, decode->name);
  leave_worker();
  tried_.push_back(prefill);
  tried_.push_back(decode);
  tried_pairs_.emplace_back(prefill, decode);
  give_up_or_go_on(resumable, "pair", why);
}

// The answer has come to its end: what it tells of the pair. The prefill worker's leg ends by itself.
void Exchange::learn_pair() {
  if (attempt_.leg == nullptr) return;
  const std::shared_ptr<PrefillLeg> leg = std::move(attempt_.leg);
  attempt_.leg = nullptr;
  leg->let_go();
  const WorkerPtr& prefill = leg->worker();
  core_.pairs.succeeded(prefill->id, attempt_.worker->id);
  if (leg->first_token() != TimePoint{} && attempt_.first_token != TimePoint{}) {
    const double link = std::max(0.0, seconds_between(leg->first_token(), attempt_.first_token));
    core_.pairs.learn_link(prefill->id, attempt_.worker->id, link);
    core_.metrics.handed_over(link);
  }
  const wire::InnerNote& usage = leg->usage();
  if (usage.kind != wire::InnerNote::Kind::kUsage || usage.first_token_us == 0) return;
  worker_seconds_ = static_cast<double>(usage.first_token_us) * 1e-6;
  if (attempts_ == 1)
    core_.registry.learn_prefill(
        prefill,
        static_cast<double>(usage.prompt_tokens - usage.cached_tokens) + attempt_.route.prefill->waiting,
        worker_seconds_);
}

// Both legs of what is not to be gone on with.
void Exchange::leave_pair() {
  if (attempt_.leg == nullptr) return;
  const std::shared_ptr<PrefillLeg> leg = std::move(attempt_.leg);
  attempt_.leg = nullptr;
  if (!attempt_.pair_judged) core_.pairs.forgotten(leg->worker()->id, attempt_.worker->id);
  if (attempt_.call != nullptr) end_rooms(attempt_.worker);
  if (leg->ended()) return;
  end_rooms(leg->worker());
  leg->cancel();
}

// A call that is cut ends its work, too; but before it has been read nobody knows it, and a room is known to
// both.
void Exchange::end_rooms(const WorkerPtr& worker) const {
  if (worker->health == WorkerHealth::kDown) return;
  wire::HttpCall call;
  call.url = worker->url;
  call.url.path += "/abort_request";
  call.method = "POST";
  call.headers = {{"content-type", "application/json"}, {"x-request-id", request_.request_id}};
  if (!core_.options.worker_api_key.empty())
    call.headers.emplace_back("authorization", "Bearer " + core_.options.worker_api_key);
  call.body = "{";
  if (worker->plain) {
    call.body += "\"rid\":";
    wire::append_json_string(call.body, facts_.rid.empty() ? rid_of(attempt_.rooms.front()) : facts_.rid);
  } else {
    append_rooms(call.body, attempt_.rooms);
  }
  call.body += "}";
  call.idle_timeout = call.deadline = std::chrono::seconds(5);
  core_.client->start(std::move(call), {});
}

}  // namespace shoal::gateway
