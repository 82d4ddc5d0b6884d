#include "cli/fake_answer.h"

#include <utility>

#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/openai_response.h"

namespace shoal::cli {
namespace {

constexpr std::int64_t kHarmAfter = 3;  // tokens

}  // namespace

FakeAnswer::FakeAnswer(Ground& ground, FakeRequest request, wire::ResponsePtr response, bool chat)
    : ground_(ground),
      request_(std::move(request)),
      response_(std::move(response)),
      format_(chat ? serving::make_chat_format(id(), request_.fields.include_usage)
                   : serving::make_completion_format(id(), request_.fields.include_usage, request_.choices)),
      results_(static_cast<std::size_t>(request_.choices)),
      left_(request_.choices) {}

std::shared_ptr<FakeSequence> FakeAnswer::make_sequence(std::int32_t choice) {
  auto sequence = std::make_shared<FakeSequence>();
  sequence->seed = static_cast<std::uint64_t>(request_.fields.sampling.seed.value_or(1));
  sequence->choice = static_cast<std::uint32_t>(choice);
  sequence->prompt_tokens = request_.longest_prompt;
  sequence->max_tokens = request_.max_tokens;
  sequence->on_token = [self = shared_from_this()](FakeSequence& from, bool last) {
    self->on_token(from, last);
  };
  return sequence;
}

bool FakeAnswer::take_up(std::int32_t choice, FakeSequence& sequence) {
  if (request_.resume.empty()) return true;
  const wire::ResumedFields& from = request_.resume[static_cast<std::size_t>(choice)];
  Result& result = results_[static_cast<std::size_t>(choice)];
  sequence.output = result.tokens = static_cast<std::int64_t>(from.output_ids.size());
  result.bytes = from.emitted_bytes;
  result.begun = result.tokens > 0;
  if (!from.finished && sequence.output < sequence.max_tokens) return true;
  std::string out;
  if (!from.finished) finish_choice(static_cast<std::size_t>(choice), wire::FinishReason::kLength, out);
  if (!out.empty() && streams()) response_->write(out);
  result.done = true;
  --left_;
  return false;
}

void FakeAnswer::start() {
  response_->on_disconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel(false);
  });
  std::vector<std::shared_ptr<FakeSequence>> sequences;
  for (std::int32_t choice = 0; choice < request_.choices; ++choice) {
    auto sequence = make_sequence(choice);
    if (request_.fields.bootstrap.empty()) {
      sequences.push_back(std::move(sequence));
    } else if (const Status refused = enter_room(sequence); refused.ok()) {
      sequences.push_back(std::move(sequence));
    } else {
      return fail(refused);
    }
  }
  if (streams()) response_->begin_stream(200, wire::kSseContentType, {{"Cache-Control", "no-cache"}});
  for (std::int32_t choice = 0; choice < request_.choices; ++choice) {
    auto& sequence = sequences[static_cast<std::size_t>(choice)];
    if (!take_up(choice, *sequence)) continue;
    sequences_.push_back(sequence);
    // A prefill worker's waits for its caller; its room holds it.
    const bool waits = ground_.prefills && !request_.fields.bootstrap.empty();
    if (!waits) submit(sequence);
    if (over_) return;
  }
  if (left_ > 0) return;
  std::string out;
  complete(out);
}

Status FakeAnswer::enter_room(const std::shared_ptr<FakeSequence>& sequence) {
  const wire::BootstrapEntry& entry = request_.fields.bootstrap[sequence->choice];
  if (ground_.prefills) {
    sequence->max_tokens = 1;
    return ground_.rooms.depart(
        entry.room, [self = shared_from_this(), sequence] { self->submit(sequence); },
        [self = shared_from_this()](const Status& why) { self->fail(why); });
  }
  if (entry.host.empty()) return wire::field_error("bootstrap_host", "must name the prefill worker");
  sequence->away = true;
  sequence->on_admitted = [self = shared_from_this(), entry] { self->ground_.rooms.call(entry); };
  return ground_.rooms.arrive(entry.room, [self = shared_from_this(), sequence](const Status& how) {
    how.ok() ? self->ground_.engine.arrived(sequence) : self->fail(how);
  });
}

void FakeAnswer::submit(const std::shared_ptr<FakeSequence>& sequence) {
  if (!over_ && !ground_.engine.submit(sequence)) fail({ErrorCode::kExhausted, "the queue is full"});
}

void FakeAnswer::cancel(bool abort) {
  if (over_) return;
  const auto self = shared_from_this();
  std::string out;
  for (std::size_t i = 0; abort && i < results_.size(); ++i) {
    if (!std::exchange(results_[i].done, true)) finish_choice(i, wire::FinishReason::kAbort, out);
  }
  over_ = true;
  for (const auto& each : sequences_) {
    if (const auto sequence = each.lock()) sequence->cancelled = true;
  }
  for (const wire::BootstrapEntry& entry : request_.fields.bootstrap) ground_.rooms.abandon(entry.room);
  ground_.held.erase(self);
  ground_.engine.wake();
  if (abort) complete(out);
}

// Nothing comes of it.
void FakeAnswer::fail(const Status& why) {
  if (over_) return;
  const auto self = shared_from_this();
  cancel(false);
  if (response_ == nullptr) return;
  if (streams() && why.code() != ErrorCode::kInvalidArgument) {
    std::string out;
    wire::append_sse_error(why, out);
    response_->write(out);
    response_->end();
  } else {
    response_->respond(wire::error_reply(why));
  }
}

void FakeAnswer::on_token(FakeSequence& sequence, bool last) {
  if (over_) return;
  const std::size_t index = sequence.choice;
  Result& result = results_[index];
  if (first_token_ == 0) first_token_ = seconds_between(arrived_, now());
  if (ground_.harm == FakeHarm::kStall && sequence.output > kHarmAfter) {
    ground_.held.insert(shared_from_this());  // until its client has had enough
    return;
  }
  if (ground_.harm == FakeHarm::kCut && sequence.output > kHarmAfter) {
    cancel(false);
    response_.reset();  // dropped in the middle of a stream, or before an answer
    return;
  }
  std::string out;
  if (ground_.harm == FakeHarm::kGarbage) {
    response_->write(": shoal {\"choice\":\ndata: {{{{\n\n");
    return;
  }
  if (!std::exchange(result.begun, true) && streams()) {
    std::string begin;
    format_->begin(static_cast<int>(index), begin);
    if (!begin.empty()) {
      wire::InnerNote role;
      role.kind = wire::InnerNote::Kind::kRole;
      role.choice = static_cast<std::int32_t>(index);
      note(out, role);
      out += begin;
    }
  }
  const TokenId token = fake_token(sequence.seed, sequence.choice, sequence.output - 1);
  const std::string text = fake_text(token, sequence.output - 1);
  if (streams()) {
    wire::InnerNote of;
    of.choice = static_cast<std::int32_t>(index);
    of.index = result.tokens;
    of.token_ids = {token};
    of.byte_offset = result.bytes;
    of.bytes = static_cast<std::int64_t>(text.size());
    note(out, of);
    format_->piece(static_cast<int>(index), {text, nullptr}, out);
  } else {
    result.text += text;
  }
  ++result.tokens;
  result.bytes += static_cast<std::int64_t>(text.size());
  if (last) {
    // A leg's one token: the decode worker goes on with it.
    if (ground_.prefills && !request_.fields.bootstrap.empty())
      ground_.rooms.commit(request_.fields.bootstrap[index].room);
    result.done = true;
    finish_choice(index, wire::FinishReason::kLength, out);
    if (--left_ == 0) {
      complete(out);
      return;
    }
  }
  if (streams()) response_->write(out);
}

void FakeAnswer::finish_choice(std::size_t index, wire::FinishReason reason, std::string& out) {
  if (!streams()) return;
  wire::InnerNote finish;
  finish.kind = wire::InnerNote::Kind::kFinish;
  finish.choice = static_cast<std::int32_t>(index);
  note(out, finish);
  format_->finish(static_cast<int>(index), reason, {}, out);
}

void FakeAnswer::complete(std::string& out) {
  over_ = true;
  wire::TokenUsage usage;
  usage.prompt_tokens = static_cast<int>(request_.prompt_tokens);
  for (const Result& result : results_) usage.completion_tokens += static_cast<int>(result.tokens);
  if (!streams()) {
    std::vector<wire::FinishedChoice> choices;
    for (Result& result : results_) {
      wire::FinishedChoice& choice = choices.emplace_back();
      choice.text = std::move(result.text);
      choice.reason = wire::FinishReason::kLength;
    }
    response_->respond(200, "application/json", format_->whole(choices, usage));
    return;
  }
  wire::InnerNote said;
  said.kind = wire::InnerNote::Kind::kUsage;
  said.prompt_tokens = usage.prompt_tokens;
  said.completion_tokens = usage.completion_tokens;
  said.first_token_us = static_cast<std::int64_t>(first_token_ * 1e6);
  for (int times = ground_.harm == FakeHarm::kRepeatUsage ? 2 : 1; times > 0; --times) {
    note(out, said);
    std::string event;
    format_->usage(usage, event);
    out += event.empty() && request_.inner ? "\n" : event;
  }
  out += wire::kSseDone;
  response_->write(out);
  response_->end();
}

}  // namespace shoal::cli
