#include "cli/fake_worker_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "serving/answer_format.h"
#include "serving/worker.h"
#include "wire/api_error.h"
#include "wire/inner_note.h"
#include "wire/json.h"
#include "wire/openai_response.h"
#include "wire/shoal_resume.h"

namespace shoal::cli {
namespace {

constexpr std::int64_t kBytesPerToken = 4;
constexpr std::int64_t kContext = 1 << 20;
constexpr std::int64_t kDefaultTokens = 64;
constexpr std::int64_t kHarmAfter = 3;  // tokens

std::int64_t tokens_of_text(std::size_t bytes) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes) / kBytesPerToken);
}

wire::HttpServerOptions on(wire::EventLoop& loop) {
  wire::HttpServerOptions options;
  options.loop = &loop;
  options.max_connections = 16'384;
  return options;
}

}  // namespace

struct FakeWorkerServer::Wanted {
  wire::CommonFields fields;
  std::int64_t prompt_tokens = 0;  // of all prompts
  std::int64_t longest_prompt = 1;
  std::int32_t choices = 1;
  std::int64_t max_tokens = kDefaultTokens;
  std::vector<wire::ResumedFields> resume;
  bool inner = false;
  std::string answer;
  std::int64_t created = 0;
};

// One request under way: its choices run in the engine, its answer goes out as they come.
class FakeAnswer : public std::enable_shared_from_this<FakeAnswer> {
 public:
  FakeAnswer(FakeWorkerServer& worker, FakeWorkerServer::Wanted wanted, wire::ResponsePtr response, bool chat)
      : worker_(worker),
        wanted_(std::move(wanted)),
        response_(std::move(response)),
        format_(chat ? serving::make_chat_format(id(), wanted_.fields.include_usage)
                     : serving::make_completion_format(id(), wanted_.fields.include_usage, wanted_.choices)),
        results_(static_cast<std::size_t>(wanted_.choices)),
        left_(wanted_.choices) {}

  void start();
  // abort: the answer ends with what there is; else nobody is there to have it.
  void cancel(bool abort);

 private:
  wire::AnswerId id() const { return {wanted_.answer, wanted_.created, wanted_.fields.model}; }
  bool streams() const { return wanted_.fields.stream; }
  FakeHarm harm() const { return worker_.options_.harm; }
  void on_token(FakeSequence& sequence, bool last);
  void finish_choice(std::size_t index, wire::FinishReason reason, std::string& out);
  void complete(std::string& out);
  void note(std::string& out, const wire::InnerNote& what) const {
    if (wanted_.inner) what.append_to(out);
  }

  FakeWorkerServer& worker_;
  const FakeWorkerServer::Wanted wanted_;
  wire::ResponsePtr response_;
  const std::unique_ptr<serving::AnswerFormat> format_;
  struct Result {
    std::string text;
    std::int64_t tokens = 0;
    std::int64_t bytes = 0;  // of its text, sent and resumed
    bool begun = false;
    bool done = false;
  };
  std::vector<Result> results_;
  std::vector<std::weak_ptr<FakeSequence>> sequences_;  // the engine holds them, and they this answer
  std::int32_t left_;
  TimePoint arrived_ = now();
  double first_token_ = 0;
};

void FakeAnswer::start() {
  response_->on_disconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel(false);
  });
  if (streams()) response_->begin_stream(200, wire::kSseContentType, {{"Cache-Control", "no-cache"}});
  std::vector<std::shared_ptr<FakeSequence>> sequences;
  const auto seed = static_cast<std::uint64_t>(wanted_.fields.sampling.seed.value_or(1));
  for (std::int32_t choice = 0; choice < wanted_.choices; ++choice) {
    Result& result = results_[static_cast<std::size_t>(choice)];
    auto sequence = std::make_shared<FakeSequence>();
    sequence->seed = seed;
    sequence->choice = static_cast<std::uint32_t>(choice);
    sequence->prompt_tokens = wanted_.longest_prompt;
    sequence->max_tokens = wanted_.max_tokens;
    if (!wanted_.resume.empty()) {
      const wire::ResumedFields& from = wanted_.resume[static_cast<std::size_t>(choice)];
      sequence->output = result.tokens = static_cast<std::int64_t>(from.output_ids.size());
      result.bytes = from.emitted_bytes;
      result.begun = result.tokens > 0;
      if (from.finished || sequence->output >= sequence->max_tokens) {
        std::string out;
        if (!from.finished) finish_choice(static_cast<std::size_t>(choice), wire::FinishReason::kLength, out);
        if (!out.empty() && streams()) response_->write(out);
        result.done = true;
        --left_;
        continue;
      }
    }
    sequences.push_back(sequence);
    sequence->on_token = [self = shared_from_this()](FakeSequence& from, bool last) {
      self->on_token(from, last);
    };
    sequences_.push_back(sequence);
  }
  if (left_ == 0) {
    std::string out;
    complete(out);
    return;
  }
  for (const auto& sequence : sequences) {
    if (worker_.engine_.submit(sequence)) continue;
    cancel(false);
    const Status full(ErrorCode::kExhausted, "the queue is full");
    if (streams()) {
      std::string out;
      wire::append_sse_error(full, out);
      response_->write(out);
      response_->end();
    } else {
      response_->respond(wire::error_reply(full));
    }
    return;
  }
}

void FakeAnswer::cancel(bool abort) {
  const auto self = shared_from_this();
  for (const auto& each : sequences_) {
    if (const auto sequence = each.lock()) sequence->cancelled = true;
  }
  worker_.held_.erase(self);
  worker_.engine_.wake();
  if (!abort) return;
  std::string out;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (!std::exchange(results_[i].done, true)) finish_choice(i, wire::FinishReason::kAbort, out);
  }
  complete(out);
}

void FakeAnswer::on_token(FakeSequence& sequence, bool last) {
  const std::size_t index = sequence.choice;
  Result& result = results_[index];
  if (first_token_ == 0) first_token_ = seconds_between(arrived_, now());
  if (harm() == FakeHarm::kStall && sequence.output > kHarmAfter) {
    worker_.held_.insert(shared_from_this());  // until its client has had enough
    return;
  }
  if (harm() == FakeHarm::kCut && sequence.output > kHarmAfter) {
    cancel(false);
    response_.reset();  // dropped in the middle of a stream, or before an answer
    return;
  }
  std::string out;
  if (harm() == FakeHarm::kGarbage) {
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
  wire::TokenUsage usage;
  usage.prompt_tokens = static_cast<int>(wanted_.prompt_tokens);
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
  for (int times = harm() == FakeHarm::kRepeatUsage ? 2 : 1; times > 0; --times) {
    note(out, said);
    std::string event;
    format_->usage(usage, event);
    out += event.empty() && wanted_.inner ? "\n" : event;
  }
  out += wire::kSseDone;
  response_->write(out);
  response_->end();
}

FakeWorkerServer::FakeWorkerServer(wire::EventLoop& loop, FakeWorkerOptions options)
    : options_(std::move(options)),
      instance_(serving::draw_instance()),
      engine_(loop, options_.engine),
      server_(on(loop)) {
  add_routes();
}

FakeWorkerServer::~FakeWorkerServer() = default;

Expected<std::uint16_t> FakeWorkerServer::listen(std::uint16_t port) {
  return server_.listen(options_.host, port);
}

wire::WorkerReport FakeWorkerServer::report() {
  wire::WorkerReport report;
  report.instance = instance_;
  report.role = options_.role;
  report.models = {options_.model};
  report.fingerprint = "fake";
  report.context = kContext;
  report.max_sequences = options_.engine.max_sequences;
  report.pages = options_.engine.pages;
  report.resumes = true;
  report.sequence = ++reports_;
  report.epoch = 1;
  report.state = draining_ ? "draining" : "ready";
  report.free_pages = options_.engine.pages;
  if (options_.harm == FakeHarm::kLieIdle) return report;
  report.running = engine_.running();
  report.waiting = engine_.waiting();
  report.uncached_tokens = engine_.uncached_tokens();
  report.free_pages = engine_.free_pages();
  return report;
}

void FakeWorkerServer::add_routes() {
  const auto json = [](const wire::ResponsePtr& response, const std::string& body) {
    response->respond(200, "application/json", body);
  };
  for (const bool chat : {true, false}) {
    server_.route("POST", chat ? "/v1/chat/completions" : "/v1/completions",
                  [this, chat](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
                    generate(request, response, chat);
                  });
  }
  server_.route(
      "GET", "/v1/models", [this, json](const wire::HttpRequest&, const wire::ResponsePtr& response) {
        json(response, wire::model_list({{options_.model, 0, options_.model, static_cast<int>(kContext)}}));
      });
  server_.route("GET", "/health", [this, json](const wire::HttpRequest&, const wire::ResponsePtr& response) {
    if (draining_) {
      response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, "this server is shutting down")));
    } else {
      json(response, R"({"status":"ok"})");
    }
  });
  if (options_.plain) return;
  server_.route("GET", wire::kWorkerReportPath,
                [this, json](const wire::HttpRequest&, const wire::ResponsePtr& response) {
                  json(response, report().to_json());
                });
  server_.route(
      "POST", "/abort_request",
      [this, json](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
        const auto document = wire::JsonDocument::parse(request.body);
        std::string_view rid;
        if (!document.ok() || document->root()["rid"].get_string().get(rid) != simdjson::SUCCESS)
          return response->respond(wire::error_reply(wire::field_error("rid", "must name a request")));
        const auto found = by_rid_.find(std::string(rid));
        const auto answer = found == by_rid_.end() ? nullptr : found->second.lock();
        if (answer != nullptr) answer->cancel(true);
        json(response, fmt::format(R"({{"cancelled":{}}})", answer != nullptr ? 1 : 0));
      });
}

Status FakeWorkerServer::read(const wire::HttpRequest& request, bool chat, Wanted& wanted) const {
  std::int32_t prompts = 1;
  if (chat) {
    SHOAL_ASSIGN(parsed, wire::parse_chat_request(request.body));
    for (const wire::ChatMessage& message : parsed.messages)
      wanted.prompt_tokens += tokens_of_text(message.content.value_or("").size());
    wanted.longest_prompt = wanted.prompt_tokens;
    wanted.fields = std::move(parsed.common);
  } else {
    SHOAL_ASSIGN(parsed, wire::parse_completion_request(request.body));
    prompts = static_cast<std::int32_t>(parsed.prompts.size());
    for (const wire::Prompt& prompt : parsed.prompts) {
      const auto* text = std::get_if<std::string>(&prompt);
      const std::int64_t tokens =
          text != nullptr ? tokens_of_text(text->size()) : std::ssize(std::get<std::vector<TokenId>>(prompt));
      wanted.prompt_tokens += tokens;
      wanted.longest_prompt = std::max(wanted.longest_prompt, tokens);
    }
    wanted.fields = std::move(parsed.common);
  }
  if (!wanted.fields.model.empty() && wanted.fields.model != options_.model)
    return {ErrorCode::kNotFound, fmt::format("the model '{}' is not served here", wanted.fields.model),
            "model"};
  wanted.fields.model = options_.model;
  wanted.choices = prompts * wanted.fields.sampling.n;
  wanted.max_tokens =
      std::max(1, wanted.fields.sampling.max_tokens.value_or(static_cast<int>(kDefaultTokens)));
  if (options_.plain) return {};
  SHOAL_ASSIGN(resume, wire::parse_resume(request.body, wanted.choices));
  wanted.resume = std::move(resume);
  wanted.inner = request.header("x-shoal-inner").value_or("") == "1";
  return {};
}

void FakeWorkerServer::generate(const wire::HttpRequest& request, const wire::ResponsePtr& response,
                                bool chat) {
  if (options_.harm == FakeHarm::kRefuse || draining_) {
    response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, "this server takes no requests")));
    return;
  }
  Wanted wanted;
  if (const Status status = read(request, chat, wanted); !status.ok()) {
    response->respond(wire::error_reply(status));
    return;
  }
  const auto given = wire::AnswerName::parse(request.header("x-shoal-answer").value_or(""));
  wanted.answer = fmt::format("{}{}", chat ? "chatcmpl-" : "cmpl-",
                              given ? given->id : fmt::format("{}{:016x}", instance_, ++answers_));
  wanted.created = given ? given->created : static_cast<std::int64_t>(std::time(nullptr));
  const std::string rid = wanted.fields.rid;
  const auto answer = std::make_shared<FakeAnswer>(*this, std::move(wanted), response, chat);
  if (!rid.empty()) {
    std::erase_if(by_rid_, [](const auto& each) { return each.second.expired(); });
    by_rid_[rid] = answer;
  }
  answer->start();
}

}  // namespace shoal::cli
