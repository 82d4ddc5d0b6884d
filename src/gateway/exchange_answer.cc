// What an exchange makes of a worker's answer: forwards it, notes what has been forwarded, learns from it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gateway/exchange.h"
#include "gateway/stream_event.h"
#include "wire/api_error.h"
#include "wire/inner_note.h"
#include "wire/json.h"
#include "wire/openai_response.h"

namespace shoal::gateway {
namespace {

constexpr std::size_t kMaxWhole = 64 * 1024 * 1024;

// Of the hop to the worker, or said by the gateway's own server.
constexpr std::array<std::string_view, 9> kOwnHeaders = {
    "connection", "keep-alive", "transfer-encoding", "content-length", "content-type",
    "date",       "server",     "x-request-id",      "trailer"};

bool retryable(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

std::int64_t usage_number(const wire::JsonElement& root, const char* name) {
  std::int64_t value = 0;
  return root["usage"][name].get_int64().get(value) == simdjson::SUCCESS ? std::max<std::int64_t>(0, value)
                                                                         : 0;
}

}  // namespace

void Exchange::on_head(int status, const wire::HeaderList& headers) {
  attempt_.status = status;
  for (const auto& [name, value] : headers) {
    if (name == "content-type") attempt_.content_type = value;
    const bool own = std::ranges::find(kOwnHeaders, name) != kOwnHeaders.end() ||
                     name.starts_with("access-control-") || name.starts_with("x-shoal-");
    if (!own) attempt_.headers.emplace_back(name, value);
  }
  attempt_.streams = status == 200 && attempt_.content_type.starts_with("text/event-stream");
}

bool Exchange::on_data(std::string_view bytes) {
  last_data_ = now();
  if (!attempt_.streams) {
    if (attempt_.body.size() + bytes.size() > kMaxWhole) {
      worker_failed({ErrorCode::kCorrupt, fmt::format("its answer exceeds {} bytes", kMaxWhole)});
      return false;
    }
    attempt_.body += bytes;
    return true;
  }
  const std::uint64_t number = attempt_.number;
  const bool whole =
      attempt_.splitter.push(bytes, [this](std::string_view event) { return on_event(event); });
  flush();
  if (ended_ || attempt_.number != number) return false;
  if (whole) return true;
  if (attempt_.failure && attempt_.leg != nullptr && attempt_.failure->code() == ErrorCode::kUnavailable) {
    pair_failed(*attempt_.failure);
  } else {
    worker_failed(attempt_.failure ? *attempt_.failure
                                   : Status(ErrorCode::kCorrupt, "its stream holds an event without an end"));
  }
  return false;
}

// False: the worker is not to be listened to any longer; attempt_.failure says why.
bool Exchange::on_event(std::string_view event) {
  attempt_.first_seen = true;
  if (ledger_) return on_shoal_event(event);
  on_plain_event(event);
  return true;
}

// Goes out with the next flush where the client does not have it yet. event: without its note.
StreamLedger::Verdict Exchange::forward(const wire::InnerNote& note, std::string_view event) {
  const StreamLedger::Verdict verdict = ledger_->judge(note);
  if (verdict != StreamLedger::Verdict::kForward) return verdict;
  if (std::exchange(attempt_.continues, false)) core_.metrics.continued(true);
  if (note.kind == wire::InnerNote::Kind::kTokens) first_token();
  if (event != "\n" && event != "\r\n") out_ += event;
  return verdict;
}

bool Exchange::on_shoal_event(std::string_view event) {
  const auto give_up = [this](ErrorCode code, std::string why) {
    attempt_.failure = Status(code, std::move(why));
    return false;
  };
  if (event.starts_with(wire::kNotePrefix)) {
    const std::size_t line = event.find('\n') + 1;
    const auto note = wire::InnerNote::parse(event.substr(0, line));
    if (!note) return give_up(ErrorCode::kCorrupt, "it speaks of its events in a way nobody understands");
    event.remove_prefix(line);
    if (note->kind == wire::InnerNote::Kind::kUsage) on_usage(*note);
    if (note->kind == wire::InnerNote::Kind::kTokens && attempt_.first_token == TimePoint{})
      attempt_.first_token = now();
    if (forward(*note, event) == StreamLedger::Verdict::kContradicts)
      return give_up(ErrorCode::kCorrupt, "its answer is another than the one that was begun");
    return true;
  }
  const std::string_view data = data_of(event);
  if (data == kDoneData) {
    if (!ledger_->finished())
      return give_up(ErrorCode::kCorrupt, "it ended its stream before the answer's end");
    attempt_.done = true;
    if (std::exchange(attempt_.continues, false)) core_.metrics.continued(true);
    out_ += event;
  } else if (is_error(data)) {
    // What befell that worker need not befall the next.
    return give_up(ErrorCode::kUnavailable, wire::error_message_of(data));
  }
  // Anything else has no note: nobody could say later whether it had been forwarded.
  return true;
}

void Exchange::on_plain_event(std::string_view event) {
  const std::string_view data = data_of(event);
  if (data == kDoneData) {
    attempt_.done = true;
  } else if (!data.empty()) {
    if (attempt_.first_token == TimePoint{}) attempt_.first_token = now();
    first_token();
    ++events_;
    if (data.find("\"usage\":{") != std::string_view::npos ||
        data.find("\"usage\": {") != std::string_view::npos) {
      const auto document = wire::JsonDocument::parse(data);
      if (document.ok()) {
        input_tokens_ = usage_number(document->root(), "prompt_tokens");
        output_tokens_ = usage_number(document->root(), "completion_tokens");
      }
    }
  }
  out_ += event;
}

void Exchange::on_usage(const wire::InnerNote& note) {
  input_tokens_ = note.prompt_tokens;
  worker_seconds_ = static_cast<double>(note.first_token_us) * 1e-6;
  // What a pair's prefill worker took it says itself.
  if (attempts_ == 1 && worker_seconds_ > 0 && attempt_.leg == nullptr)
    core_.registry.learn_prefill(
        attempt_.worker,
        static_cast<double>(note.prompt_tokens - note.cached_tokens) + attempt_.route.worker.waiting,
        worker_seconds_);
}

void Exchange::first_token() {
  attempt_.reservation.first_token();
  if (std::exchange(first_token_seen_, true)) return;
  first_sent_ = now();
}

void Exchange::flush() {
  if (out_.empty() || ended_) return;
  if (!begun_) {
    begun_ = true;
    wire::HeaderList headers = extra_headers();
    headers.insert(headers.end(), attempt_.headers.begin(), attempt_.headers.end());
    if (attempt_.worker->report) fingerprint_ = attempt_.worker->report->fingerprint;
    // A prefill worker's first token may come before the decode worker's head.
    const bool headed = !attempt_.content_type.empty();
    response_->begin_stream(200, headed ? attempt_.content_type : wire::kSseContentType, headers);
  }
  // A client that has gone is told of by its own callback.
  const bool there = response_->write(out_);
  out_.clear();
  if (!there || attempt_.call == nullptr || response_->backlog() <= core_.options.backlog_high) return;
  attempt_.call->pause();
  response_->on_backlog_below(core_.options.backlog_low, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && !self->ended_ && self->attempt_.call != nullptr) self->attempt_.call->resume();
  });
}

void Exchange::on_end(const Status& status) {
  attempt_.call = nullptr;
  // Engines need not end their last event with a blank line; workers of this system do.
  if (attempt_.streams && status.ok() && !ledger_) {
    const std::string rest = attempt_.splitter.rest();
    if (!rest.empty()) on_plain_event(rest);
    flush();
    if (ended_) return;
  }
  if (attempt_.streams && (attempt_.done || (status.ok() && !ledger_))) {
    finish_stream();
  } else if (!status.ok()) {
    worker_failed(status);
  } else if (attempt_.streams) {
    worker_failed({ErrorCode::kUnavailable, "it ended its stream before the answer's end"});
  } else if (retryable(attempt_.status) || begun_ ||
             (attempt_.leg != nullptr && attempt_.status == 400 && blames_room(attempt_.body))) {
    worker_refused();
  } else {
    deliver_whole();
  }
}

void Exchange::finish_stream() {
  attempt_.judged = true;
  core_.registry.succeeded(attempt_.worker);
  learn_pair();
  if (!begun_) {  // a stream without a single event
    begun_ = true;
    response_->begin_stream(200, attempt_.content_type, extra_headers());
  }
  response_->end();
  if (ledger_) {
    output_tokens_ = ledger_->tokens();
  } else if (output_tokens_ == 0) {
    output_tokens_ = events_;
  }
  if (first_token_seen_)
    core_.metrics.first_token(seconds_between(arrived_, first_sent_), seconds_between(arrived_, admitted_),
                              worker_seconds_);
  learn(input_tokens_, output_tokens_);
  end(Ending::kAnswered, 200);
}

void Exchange::deliver_whole() {
  if (attempt_.status < 500) {
    attempt_.judged = true;
    core_.registry.succeeded(attempt_.worker);
  }
  if (attempt_.status == 200) learn_pair();
  wire::HeaderList headers = extra_headers();
  headers.insert(headers.end(), attempt_.headers.begin(), attempt_.headers.end());
  response_->respond(attempt_.status, attempt_.content_type, attempt_.body, headers);
  if (generates_ && attempt_.status == 200) {
    const auto document = wire::JsonDocument::parse(attempt_.body);
    if (document.ok()) {
      input_tokens_ = usage_number(document->root(), "prompt_tokens");
      output_tokens_ = usage_number(document->root(), "completion_tokens");
      learn(input_tokens_, output_tokens_);
    }
  }
  end(attempt_.status < 500 ? Ending::kAnswered : Ending::kFailed, attempt_.status);
}

void Exchange::learn(std::int64_t input, std::int64_t output) {
  if (!generates_) return;
  core_.metrics.tokens(static_cast<double>(input), static_cast<double>(output));
  core_.profiler.learn(model_ + request_.path, tenant_ == nullptr ? "" : tenant_->name, facts_.size,
                       facts_.prompts == 1 ? input : 0, output / std::max(1, facts_.choices));
}

wire::HeaderList Exchange::extra_headers() const {
  if (!route_asked_) return {};
  return {{"X-Shoal-Route", route_text()}};
}

std::string Exchange::route_text() const {
  const Worker* worker = attempt_.worker != nullptr ? attempt_.worker.get()
                         : tried_.empty()           ? nullptr
                                                    : tried_.back().get();
  const char* name = worker == nullptr ? "-" : worker->name.c_str();
  const Route& route = attempt_.route;
  const std::string who = route.prefill ? fmt::format("prefill={}; decode={}", prefill_name_, name)
                                        : fmt::format("worker={}", name);
  return fmt::format(
      "{}; reason={}; attempts={}; class={}; input={:.0f}; output_p50={:.0f}; output_p90={:.0f}; "
      "queue={:.0f}; seconds={:.3f}; trace={}",
      who, policy::name_of(route.reason), attempts_, policy::name_of(profile_.request_class),
      profile_.input_tokens, profile_.output_p50, profile_.output_p90,
      route.prefill ? route.prefill->queue : route.worker.queue, route.seconds, trace_.trace_id);
}

}  // namespace shoal::gateway
