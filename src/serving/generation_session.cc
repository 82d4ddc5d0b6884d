#include "serving/generation_session.h"

#include "wire/api_error.h"

namespace shoal::serving {
namespace {

wire::FinishReason to_wire(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return wire::FinishReason::kStop;
    case engine::FinishReason::kLength:
      return wire::FinishReason::kLength;
    case engine::FinishReason::kCancelled:
    case engine::FinishReason::kError:
      return wire::FinishReason::kAbort;
  }
  return wire::FinishReason::kStop;
}

}  // namespace

GenerationSession::GenerationSession(engine::Engine& engine, SessionRegistry& registry,
                                     wire::ResponsePtr response, std::unique_ptr<AnswerFormat> format,
                                     Options options)
    : engine_(engine),
      registry_(registry),
      tokenizer_(engine.tokenizer()),
      options_(std::move(options)),
      response_(std::move(response)),
      format_(std::move(format)) {}

GenerationSession::~GenerationSession() { release_name(); }

void GenerationSession::start(engine::Engine& engine, SessionRegistry& registry, wire::ResponsePtr response,
                              std::unique_ptr<AnswerFormat> format, std::vector<SessionPrompt> prompts,
                              Options options) {
  std::shared_ptr<GenerationSession> session(
      new GenerationSession(engine, registry, std::move(response), std::move(format), std::move(options)));
  if (const Status refused = session->enter(); !refused.ok()) {
    session->response_->respond(wire::error_reply(refused));
    return;
  }
  // Weak: the response owns the callback, and the session owns the response.
  session->response_->on_disconnect([weak = session->weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel();
  });
  session->submit_all(std::move(prompts));
}

Status GenerationSession::enter() {
  // Under the mutex: an abort may come as soon as the name is known.
  const std::lock_guard lock(mutex_);
  switch (registry_.admit(options_.names, options_.number, weak_from_this())) {
    case SessionRegistry::Admission::kAdmitted:
      named_ = true;
      return {};
    case SessionRegistry::Admission::kNameTaken:
      return {ErrorCode::kInvalidArgument, "a request named " + options_.names.rid + " is running already",
              "rid"};
    case SessionRegistry::Admission::kAborted:
      break;
  }
  return {ErrorCode::kCancelled, "the request was aborted before it was read"};
}

void GenerationSession::submit_all(std::vector<SessionPrompt> prompts) {
  {
    const std::lock_guard lock(mutex_);
    choices_per_prompt_ = prompts.front().request.n;
    running_ = prompts.size();
    arrived_ = prompts.front().request.arrival;
    choices_.resize(prompts.size() * static_cast<std::size_t>(choices_per_prompt_));
    for (Choice& choice : choices_) choice.result.has_logprobs = options_.logprobs;
    for (SessionPrompt& prompt : prompts) {
      prompts_.push_back({std::move(prompt.echo), {}});
      first_tokens_.push_back(prompt.request.prompt.front());
    }
    if (!options_.resume.empty()) take_up(prompts);
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].request.resume.empty() && !options_.resume.empty())
      continue;  // its choices have all ended
    auto id = engine_.submit(
        std::move(prompts[i].request),
        [self = shared_from_this(), i](engine::OutputEvent&& event) { self->on_event(i, std::move(event)); });
    if (!id.ok()) {
      fail(id.error());
      return;
    }
    std::unique_lock lock(mutex_);
    ids_.push_back(*id);
    if (gone_) {
      lock.unlock();
      cancel();
      return;
    }
  }
  bool cancels = false;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    if (options_.stream) {
      response_->begin_stream(200, wire::kSseContentType, {{"Cache-Control", "no-cache"}});
    }
    started_ = true;
    for (auto& [prompt, event] : early_) handle(prompt, event);
    early_.clear();
    if (running_ == 0 && response_ != nullptr) {  // every choice had ended before
      std::string out;
      complete(out);
    }
    // An abort of all that came since enter() found in the engine only what had been submitted by then.
    aborted_ = aborted_ || registry_.aborts_all(options_.number);
    cancels = gone_ || aborted_;
  }
  if (cancels) cancel_engine_requests();
}

void GenerationSession::on_event(std::size_t prompt, engine::OutputEvent&& event) {
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    if (!started_) {
      early_.emplace_back(prompt, std::move(event));
      return;
    }
    const bool gone = gone_;
    handle(prompt, event);
    failed = gone_ && !gone;
  }
  // Outside the mutex, which is never held while the engine's is taken.
  if (failed) cancel_engine_requests();
}

// Under the mutex.
void GenerationSession::handle(std::size_t prompt, engine::OutputEvent& event) {
  if (response_ == nullptr) return;
  if (event.last && !event.error.ok()) {
    gone_ = true;  // the other prompts are cancelled
    release_name();
    if (options_.stream) {
      std::string out;
      wire::append_sse_error(event.error, out);
      response_->write(out);
      response_->end();
    } else {
      response_->respond(wire::error_reply(event.error));
    }
    response_.reset();
    return;
  }
  std::string out;
  const std::size_t index =
      prompt * static_cast<std::size_t>(choices_per_prompt_) + static_cast<std::size_t>(event.choice);
  Choice& choice = choices_[index];
  if (first_token_ == 0 && !event.tokens.empty()) first_token_ = seconds_between(arrived_, now());
  if (!event.prompt_logprobs.empty()) {
    prompts_[prompt].echo_logprobs =
        logprobs_of(first_tokens_[prompt], event.prompt_logprobs, prompts_[prompt].echo);
  }
  if (!choice.begun) begin_choice(prompt, index, out);
  note_tokens(index, event, out);
  if (!event.text.empty() || (options_.logprobs && !event.tokens.empty())) {
    std::vector<wire::TokenLogprobs> logprobs;
    if (options_.logprobs) logprobs = logprobs_of(event.tokens);
    add_piece(index, {event.text, options_.logprobs ? &logprobs : nullptr}, out);
  } else if (options_.inner && !event.tokens.empty()) {
    out += '\n';  // the note stands alone
  }
  if (event.finish) {
    choice.result.reason = to_wire(*event.finish);
    choice.result.matched_stop = event.matched_stop;
    note(wire::InnerNote::Kind::kFinish, index, out);
    if (options_.stream)
      format_->finish(static_cast<int>(index), choice.result.reason, event.matched_stop, out);
  }
  if (event.last) {
    usage_.prompt_tokens += event.usage.prompt_tokens;
    usage_.completion_tokens += event.usage.completion_tokens;
    usage_.cached_tokens += event.usage.cached_tokens;
    if (--running_ == 0) {
      complete(out);
      return;
    }
  }
  if (options_.stream && !out.empty()) response_->write(out);
}

void GenerationSession::begin_choice(std::size_t prompt, std::size_t index, std::string& out) {
  choices_[index].begun = true;
  std::string begin;
  if (options_.stream) format_->begin(static_cast<int>(index), begin);
  if (options_.echo) {
    if (options_.logprobs && prompts_[prompt].echo_logprobs.empty()) {
      prompts_[prompt].echo_logprobs =
          logprobs_of(first_tokens_[prompt], {}, prompts_[prompt].echo);  // one token alone has no score
    }
    const PromptState& state = prompts_[prompt];
    add_piece(index, {state.echo, options_.logprobs ? &state.echo_logprobs : nullptr}, begin);
  }
  if (begin.empty()) return;
  note(wire::InnerNote::Kind::kRole, index, out);
  out += begin;
}

// What another worker has put out: usage counts it, and offsets begin behind it.
void GenerationSession::take_up(const std::vector<SessionPrompt>& prompts) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const wire::ResumedFields& from = options_.resume[i];
    Choice& choice = choices_[i];
    choice.tokens = std::ssize(from.output_ids);
    choice.bytes = from.emitted_bytes;
    choice.begun = choice.tokens > 0 || from.finished;
    if (!options_.logprobs || !choice.begun) continue;
    const std::size_t prompt = i / static_cast<std::size_t>(choices_per_prompt_);
    int characters = options_.echo ? wire::count_characters(prompts_[prompt].echo) : 0;
    for (const TokenId id : from.output_ids) {
      const bool shown = !options_.skip_special || !tokenizer_->is_special(id);
      if (shown) characters += wire::count_characters(tokenizer_->piece(id));
    }
    format_->resume(static_cast<int>(i), characters);
  }
  // Prompts whose choices have all ended are not computed again.
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (!prompts[i].request.resume.empty()) continue;
    --running_;
    usage_.prompt_tokens += static_cast<int>(prompts[i].request.prompt.size());
    for (std::size_t c = 0; c < static_cast<std::size_t>(choices_per_prompt_); ++c)
      usage_.completion_tokens +=
          static_cast<int>(choices_[i * static_cast<std::size_t>(choices_per_prompt_) + c].tokens);
  }
}

void GenerationSession::note(wire::InnerNote::Kind kind, std::size_t index, std::string& out) const {
  if (!options_.inner) return;
  wire::InnerNote note;
  note.kind = kind;
  note.choice = static_cast<std::int32_t>(index);
  note.append_to(out);
}

void GenerationSession::note_tokens(std::size_t index, const engine::OutputEvent& event, std::string& out) {
  if (!options_.inner || (event.tokens.empty() && event.text.empty())) return;
  Choice& choice = choices_[index];
  wire::InnerNote note;
  note.choice = static_cast<std::int32_t>(index);
  note.index = choice.tokens;
  for (const engine::TokenOutput& token : event.tokens) note.token_ids.push_back(token.id);
  note.byte_offset = choice.bytes;
  note.bytes = std::ssize(event.text);
  note.append_to(out);
  choice.tokens += std::ssize(event.tokens);
  choice.bytes += note.bytes;
}

void GenerationSession::add_piece(std::size_t index, const Piece& piece, std::string& out) {
  if (options_.stream) {
    format_->piece(static_cast<int>(index), piece, out);
    return;
  }
  wire::FinishedChoice& result = choices_[index].result;
  result.text += piece.text;
  if (piece.logprobs != nullptr)
    result.logprobs.insert(result.logprobs.end(), piece.logprobs->begin(), piece.logprobs->end());
}

void GenerationSession::complete(std::string& out) {
  release_name();
  if (options_.stream) {
    std::string event;
    format_->usage(usage_, event);
    if (options_.inner) {
      wire::InnerNote note;
      note.kind = wire::InnerNote::Kind::kUsage;
      note.prompt_tokens = usage_.prompt_tokens;
      note.cached_tokens = usage_.cached_tokens;
      note.completion_tokens = usage_.completion_tokens;
      note.first_token_us = static_cast<std::int64_t>(first_token_ * 1e6);
      note.append_to(out);
      if (event.empty()) event = "\n";
    }
    out += event;
    out += wire::kSseDone;
    response_->write(out);
    response_->end();
  } else {
    std::vector<wire::FinishedChoice> results;
    results.reserve(choices_.size());
    for (Choice& choice : choices_) results.push_back(std::move(choice.result));
    response_->respond(200, "application/json", format_->whole(results, usage_));
  }
  response_.reset();
}

void GenerationSession::fail(const Status& error) {
  {
    const std::lock_guard lock(mutex_);
    release_name();
    if (response_ != nullptr) response_->respond(wire::error_reply(error));
    response_.reset();
  }
  cancel();
}

void GenerationSession::cancel() {
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }
  cancel_engine_requests();
}

void GenerationSession::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  cancel_engine_requests();
}

void GenerationSession::cancel_engine_requests() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  for (const RequestId id : ids) engine_.cancel(id);
}

// Under the mutex, or with nobody else left.
void GenerationSession::release_name() {
  if (!named_) return;
  named_ = false;
  registry_.remove(options_.names, weak_from_this());
}

std::vector<wire::TokenLogprobs> GenerationSession::logprobs_of(
    const std::vector<engine::TokenOutput>& tokens) const {
  std::vector<wire::TokenLogprobs> out;
  out.reserve(tokens.size());
  for (const engine::TokenOutput& token : tokens) {
    wire::TokenLogprobs& entry = out.emplace_back();
    entry.bytes = tokenizer_->piece(token.id);
    entry.logprob = token.logprob;
    if (options_.skip_special && tokenizer_->is_special(token.id)) entry.shown_characters = 0;
    for (const TokenLogprob& top : token.top) entry.top.push_back({tokenizer_->piece(top.id), top.logprob});
  }
  return out;
}

std::vector<wire::TokenLogprobs> GenerationSession::logprobs_of(TokenId first,
                                                                const std::vector<PromptLogprobs>& prompt,
                                                                std::string_view echo) const {
  std::vector<wire::TokenLogprobs> out;
  out.reserve(prompt.size() + 1);
  bool begun = false;  // a token that the text shows has been passed
  const auto add = [&](TokenId id) -> wire::TokenLogprobs& {
    wire::TokenLogprobs& entry = out.emplace_back();
    entry.bytes = tokenizer_->piece(id);
    const bool starts_text = echo.starts_with(entry.bytes);
    if (tokenizer_->is_special(id) &&
        (begun ? echo.find(entry.bytes) == std::string_view::npos : !starts_text)) {
      entry.shown_characters = 0;
    } else {
      // SentencePiece puts a space before the first word.
      if (!begun && !starts_text && entry.bytes.starts_with(' ')) {
        entry.shown_characters = wire::count_characters(entry.bytes) - 1;
      }
      begun = true;
    }
    return entry;
  };
  add(first);
  for (const PromptLogprobs& scored : prompt) {
    wire::TokenLogprobs& entry = add(scored.id);
    entry.logprob = scored.logprob;
    for (const TokenLogprob& top : scored.top) entry.top.push_back({tokenizer_->piece(top.id), top.logprob});
  }
  return out;
}

}  // namespace shoal::serving
