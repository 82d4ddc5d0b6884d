#include "serving/openai_routes.h"

#include <fmt/format.h>

#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "core/log.h"
#include "serving/generate_request.h"
#include "serving/generation_session.h"
#include "serving/handover_requests.h"
#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/openai_request.h"
#include "wire/shoal_resume.h"

namespace shoal::serving {
namespace {

// Moves the request to the text thread; a queue that is full there is an overload like any other.
template <typename Handler>
void on_text_thread(Worker& worker, wire::HttpRequest request, const wire::ResponsePtr& response,
                    Handler handler) {
  const std::size_t bytes = request.body.size();
  const bool posted = worker.text->post(
      [&worker, request = std::move(request), response, handler] {
        if (response->disconnected()) return;
        try {
          handler(worker, request, response);
        } catch (const std::exception& failure) {
          log(LogLevel::kError, "request.failed", "id={} what={}", response->request_id(), failure.what());
          response->respond(wire::error_reply(
              Status(ErrorCode::kInternal, "this server failed while it was reading the request")));
        }
      },
      bytes);
  if (!posted) {
    response->respond(
        wire::error_reply(Status(ErrorCode::kExhausted, "too many requests are waiting to be read")));
  }
}

Status check_model(const Worker& worker, const std::string& asked) {
  if (asked.empty() || asked == worker.served_name) return {};
  return Status(
      ErrorCode::kNotFound,
      fmt::format("the model '{}' is not served here; this server has '{}'", asked, worker.served_name),
      "model");
}

// Drawn: the request's own id may be a tracing id that several calls share. The log names both.
// A gateway names the answer itself, so that it stays the same when another worker goes on with it.
wire::AnswerId answer_id(const Worker& worker, const wire::HttpRequest& http,
                         const wire::ResponsePtr& response, const std::string& rid, const char* prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  const auto given = wire::AnswerName::parse(http.header("x-shoal-answer").value_or(""));
  std::string id = given ? prefix + given->id : fmt::format("{}{:016x}{:016x}", prefix, random(), random());
  log(LogLevel::kInfo, "request.read", "answer={} id={} rid={}", id, response->request_id(), rid);
  const auto created = given ? given->created : static_cast<std::int64_t>(std::time(nullptr));
  return {std::move(id), created, worker.served_name};
}

// What the engine calls it. A gateway that tries anew, here of all places, names the same answer again before
// the engine has heard that the first try is over.
std::string engine_name(const Worker& worker, const wire::AnswerId& answer) {
  return fmt::format("{}/{}", answer.id, worker.text->current());
}

// One that asks for notes, and can go on elsewhere.
bool comes_from_gateway(const wire::HttpRequest& http) { return http.header("x-shoal-inner") == "1"; }

// Of the choices from `first` on; nothing where none is left to be computed.
std::vector<engine::ResumedChoice> resumed_choices(const std::vector<wire::ResumedFields>& fields,
                                                   std::size_t first, int n) {
  std::vector<engine::ResumedChoice> choices;
  bool open = false;
  for (std::size_t i = first; i < first + static_cast<std::size_t>(n); ++i) {
    choices.push_back({fields[i].output_ids, fields[i].emitted_bytes, fields[i].finished});
    open = open || !fields[i].finished;
  }
  if (!open) choices.clear();
  return choices;
}

// More answers than may run and wait together would never fit: not worth a second try.
Status check_choices(const Worker& worker, std::size_t prompts, int n) {
  const auto choices = static_cast<std::int64_t>(prompts) * n;
  if (choices <= worker.max_choices) return {};
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("the request asks for {} answers; this server takes at most {} at once", choices,
                            worker.max_choices),
                n > worker.max_choices ? "n" : "prompt");
}

Status run_chat(Worker& worker, const wire::HttpRequest& http, const wire::ResponsePtr& response) {
  SHOAL_ASSIGN(chat, wire::parse_chat_request(http.body, worker.sampling_defaults));
  SHOAL_TRY(check_model(worker, chat.common.model));
  SHOAL_TRY(check_choices(worker, 1, chat.common.sampling.n));
  SHOAL_ASSIGN(prompt, worker.prompts.chat(chat));
  SHOAL_ASSIGN(request, make_generate_request(chat.common, std::move(prompt),
                                              worker.engine->description().vocabulary));
  SHOAL_ASSIGN(resume, wire::parse_resume(http.body, chat.common.sampling.n));
  if (!resume.empty()) request.resume = resumed_choices(resume, 0, chat.common.sampling.n);
  wire::AnswerId answer = answer_id(worker, http, response, chat.common.rid, "chatcmpl-");
  request.rid = engine_name(worker, answer);
  request.continues_prompt = chat.continue_final_message;
  // A gateway goes on elsewhere where this worker loses a rank; whoever asks directly has nowhere else.
  request.outlives_ranks = !comes_from_gateway(http);
  std::vector<SessionPrompt> prompts;
  prompts.push_back({std::move(request), {}});
  SHOAL_TRY(add_legs(worker, chat.common, prompts));
  const std::string name = answer.id;
  GenerationSession::start(*worker.engine, *worker.sessions, response,
                           make_chat_format(std::move(answer), chat.common.include_usage), std::move(prompts),
                           {.stream = chat.common.stream,
                            .logprobs = chat.common.sampling.logprobs,
                            .echo = false,
                            .skip_special = chat.common.sampling.skip_special_tokens,
                            .names = {chat.common.rid, name},
                            .number = worker.text->current(),
                            .inner = chat.common.stream && comes_from_gateway(http),
                            .resume = std::move(resume)});
  return {};
}

Status run_completion(Worker& worker, const wire::HttpRequest& http, const wire::ResponsePtr& response) {
  SHOAL_ASSIGN(completion, wire::parse_completion_request(http.body, worker.sampling_defaults));
  SHOAL_TRY(check_model(worker, completion.common.model));
  const wire::SamplingFields& sampling = completion.common.sampling;
  SHOAL_TRY(check_choices(worker, completion.prompts.size(), sampling.n));
  SHOAL_ASSIGN(resume, wire::parse_resume(http.body,
                                          static_cast<std::int32_t>(completion.prompts.size()) * sampling.n));
  wire::AnswerId answer = answer_id(worker, http, response, completion.common.rid, "cmpl-");
  std::vector<SessionPrompt> prompts;
  for (const wire::Prompt& prompt : completion.prompts) {
    SHOAL_ASSIGN(ids, worker.prompts.completion(prompt));
    SessionPrompt& added = prompts.emplace_back();
    if (completion.echo) {
      const auto* text = std::get_if<std::string>(&prompt);
      added.echo = text != nullptr ? *text : worker.prompts.tokenizer().decode(ids, true);
    }
    SHOAL_ASSIGN(request, make_generate_request(completion.common, std::move(ids),
                                                worker.engine->description().vocabulary));
    // The engine runs a name only once: the prompts of a list get a number each.
    request.rid = engine_name(worker, answer);
    if (completion.prompts.size() > 1) request.rid += fmt::format("-{}", prompts.size() - 1);
    request.continues_prompt = true;
    request.outlives_ranks = !comes_from_gateway(http);
    if (completion.echo && sampling.logprobs) request.prompt_logprobs = sampling.top_logprobs;
    if (!resume.empty()) {
      const std::size_t first = (prompts.size() - 1) * static_cast<std::size_t>(sampling.n);
      request.resume = resumed_choices(resume, first, sampling.n);
    }
    added.request = std::move(request);
  }
  SHOAL_TRY(add_legs(worker, completion.common, prompts));
  const int choices = static_cast<int>(prompts.size()) * sampling.n;
  const std::string name = answer.id;
  GenerationSession::start(
      *worker.engine, *worker.sessions, response,
      make_completion_format(std::move(answer), completion.common.include_usage, choices), std::move(prompts),
      {.stream = completion.common.stream,
       .logprobs = sampling.logprobs,
       .echo = completion.echo,
       .skip_special = sampling.skip_special_tokens,
       .names = {completion.common.rid, name},
       .number = worker.text->current(),
       .inner = completion.common.stream && comes_from_gateway(http),
       .resume = std::move(resume)});
  return {};
}

Status run_tokenize(Worker& worker, const wire::HttpRequest& http, const wire::ResponsePtr& response) {
  SHOAL_ASSIGN(document, wire::JsonDocument::parse(http.body));
  SHOAL_ASSIGN(fields, document.fields());
  std::vector<TokenId> ids;
  if (fields.has("messages")) {
    SHOAL_ASSIGN(chat, wire::parse_chat_request(http.body));
    SHOAL_ASSIGN(encoded, worker.prompts.chat(chat));
    ids = std::move(encoded);
  } else {
    std::string prompt;
    bool add_special = true;
    if (!fields.has("prompt"))
      return wire::field_error("prompt", "must be a text, unless messages are given");
    SHOAL_TRY(fields.text("prompt", prompt));
    SHOAL_TRY(fields.boolean("add_special_tokens", add_special));
    SHOAL_ASSIGN(encoded, worker.prompts.encode(prompt, add_special, "prompt"));
    ids = std::move(encoded);
  }
  const nlohmann::json answer = {
      {"tokens", ids}, {"count", ids.size()}, {"max_model_len", worker.engine->context()}};
  response->respond(200, "application/json",
                    answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return {};
}

Status run_detokenize(Worker& worker, const wire::HttpRequest& http, const wire::ResponsePtr& response) {
  SHOAL_ASSIGN(document, wire::JsonDocument::parse(http.body));
  SHOAL_ASSIGN(fields, document.fields());
  const auto tokens = fields.find("tokens");
  if (!tokens) return wire::field_error("tokens", "must be a list of token ids");
  // 4 bytes of body a token at least: the body's own bound is the list's.
  SHOAL_ASSIGN(ids, wire::json_token_ids(*tokens, "tokens", http.body.size()));
  for (const TokenId id : ids) {
    if (id >= worker.prompts.tokenizer().vocab_size()) {
      return wire::field_error("tokens", fmt::format("names token {}, which this model does not have", id));
    }
  }
  const nlohmann::json answer = {{"text", worker.prompts.tokenizer().decode(ids, false)}};
  response->respond(200, "application/json",
                    answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return {};
}

template <Status (*kRun)(Worker&, const wire::HttpRequest&, const wire::ResponsePtr&)>
void answer_with(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response) {
  if (const Status status = kRun(worker, request, response); !status.ok())
    response->respond(wire::error_reply(status));
}

wire::ModelCard card_of(const Worker& worker) {
  return {worker.served_name, worker.created, worker.model_file, worker.engine->context()};
}

}  // namespace

void handle_chat_completion(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response) {
  on_text_thread(worker, std::move(request), response, answer_with<run_chat>);
}

void handle_completion(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response) {
  on_text_thread(worker, std::move(request), response, answer_with<run_completion>);
}

void handle_tokenize(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response) {
  on_text_thread(worker, std::move(request), response, answer_with<run_tokenize>);
}

void handle_detokenize(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response) {
  on_text_thread(worker, std::move(request), response, answer_with<run_detokenize>);
}

void handle_models(Worker& worker, const wire::HttpRequest&, const wire::ResponsePtr& response) {
  response->respond(200, "application/json", wire::model_list({card_of(worker)}));
}

void handle_model(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  if (const Status status = check_model(worker, name); !status.ok()) {
    response->respond(wire::error_reply(status));
    return;
  }
  response->respond(200, "application/json", wire::model_card(card_of(worker)));
}

}  // namespace shoal::serving
