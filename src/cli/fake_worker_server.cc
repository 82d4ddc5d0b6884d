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
constexpr std::size_t kTidyAt = 4096;  // rooms named, of answers that may have ended

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

FakeWorkerServer::FakeWorkerServer(wire::EventLoop& loop, wire::HttpClient& client, FakeWorkerOptions options)
    : options_(std::move(options)),
      instance_(serving::draw_instance()),
      engine_(loop, options_.engine),
      rooms_(loop, client),
      ground_{engine_, rooms_, options_.harm, options_.role == "prefill", {}},
      server_(on(loop)) {
  add_routes();
}

FakeWorkerServer::~FakeWorkerServer() = default;

Expected<std::uint16_t> FakeWorkerServer::listen(std::uint16_t port) {
  SHOAL_ASSIGN(bound, server_.listen(options_.host, port));
  port_ = bound;
  return port_;
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
  if (ground_.prefills) report.bootstrap_port = port_;
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
  server_.route("POST", "/fake_room",
                [this](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
                  rooms_.handle_call(request, response);
                });
  server_.route(
      "POST", "/abort_request",
      [this, json](const wire::HttpRequest& request, const wire::ResponsePtr& response) {
        const auto document = wire::JsonDocument::parse(request.body);
        std::string_view rid;
        std::vector<wire::BootstrapEntry> rooms;
        if (document.ok() && document->fields().ok()) {
          if (const Status status = wire::read_bootstrap_fields(*document->fields(), rooms); !status.ok())
            return response->respond(wire::error_reply(status));
        }
        const bool named =
            document.ok() && document->root()["rid"].get_string().get(rid) == simdjson::SUCCESS;
        if (!named && rooms.empty())
          return response->respond(wire::error_reply(wire::field_error("rid", "must name a request")));
        for (const wire::BootstrapEntry& entry : rooms) abandon(entry.room);
        const auto found = by_rid_.find(std::string(rid));
        const auto answer = found == by_rid_.end() ? nullptr : found->second.lock();
        if (answer != nullptr) answer->cancel(true);
        json(response, fmt::format(R"({{"cancelled":{}}})", answer != nullptr ? 1 : 0));
      });
}

Status FakeWorkerServer::read(const wire::HttpRequest& request, bool chat, FakeRequest& wanted) const {
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
  SHOAL_TRY(check_rooms(wanted));
  if (options_.plain) return {};
  SHOAL_ASSIGN(resume, wire::parse_resume(request.body, wanted.choices));
  wanted.resume = std::move(resume);
  wanted.inner = request.header("x-shoal-inner").value_or("") == "1";
  return {};
}

Status FakeWorkerServer::check_rooms(const FakeRequest& wanted) const {
  const auto& rooms = wanted.fields.bootstrap;
  if (rooms.empty()) return {};
  if (options_.role == "both")
    return wire::field_error("bootstrap_room", "cannot be served: this worker's role is both");
  if (std::ssize(rooms) != wanted.choices)
    return wire::field_error("bootstrap_room",
                             fmt::format("must have {} entries, one for each answer", wanted.choices));
  return {};
}

// Whoever has the room ends; one that has not come is refused.
void FakeWorkerServer::abandon(FakeRooms::RoomId room) {
  const auto it = by_room_.find(room);
  const auto answer = it == by_room_.end() ? nullptr : it->second.lock();
  if (answer != nullptr) answer->cancel(true);
  rooms_.abandon(room);
}

void FakeWorkerServer::generate(const wire::HttpRequest& request, const wire::ResponsePtr& response,
                                bool chat) {
  if (options_.harm == FakeHarm::kRefuse || draining_) {
    response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, "this server takes no requests")));
    return;
  }
  FakeRequest wanted;
  if (const Status status = read(request, chat, wanted); !status.ok()) {
    response->respond(wire::error_reply(status));
    return;
  }
  const auto given = wire::AnswerName::parse(request.header("x-shoal-answer").value_or(""));
  wanted.answer = fmt::format("{}{}", chat ? "chatcmpl-" : "cmpl-",
                              given ? given->id : fmt::format("{}{:016x}", instance_, ++answers_));
  wanted.created = given ? given->created : static_cast<std::int64_t>(std::time(nullptr));
  const std::string rid = wanted.fields.rid;
  const std::vector<wire::BootstrapEntry> rooms = wanted.fields.bootstrap;
  const auto answer = std::make_shared<FakeAnswer>(ground_, std::move(wanted), response, chat);
  for (const wire::BootstrapEntry& entry : rooms) by_room_[entry.room] = answer;
  if (by_room_.size() > 2 * kTidyAt)
    std::erase_if(by_room_, [](const auto& each) { return each.second.expired(); });
  if (!rid.empty()) {
    std::erase_if(by_rid_, [](const auto& each) { return each.second.expired(); });
    by_rid_[rid] = answer;
  }
  answer->start();
}

}  // namespace shoal::cli
