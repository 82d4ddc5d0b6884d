#include "cli/pair_front.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/openai_request.h"

namespace shoal::cli {
namespace {

constexpr std::size_t kMostErrorBytes = std::size_t{1} << 20;
// Of prefill's leg, which is not streamed: a prompt may be long and the queue, too.
constexpr std::chrono::minutes kLegTime{30};
// The decode worker has answered: so long prefill's leg may take to hear of it. What still runs then is a leg
// that was never called for, because the other one was ended at its worker.
constexpr std::chrono::milliseconds kAfterDecode{500};

std::uint64_t draw_room() {
  thread_local std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) >> 1;
}

// Prompts of a completion request: a list of texts or of lists is several, all else one.
std::size_t prompts_in(const nlohmann::ordered_json& body) {
  const auto prompt = body.find("prompt");
  if (prompt == body.end() || !prompt->is_array() || prompt->empty()) return 1;
  return prompt->front().is_number() ? 1 : prompt->size();
}

}  // namespace

Expected<PairBodies> pair_bodies(std::string_view text, const std::string& bootstrap_host,
                                 std::uint16_t bootstrap_port) {
  // Checked by the parser that the workers use: depth, encoding, numbers.
  SHOAL_ASSIGN(document, wire::JsonDocument::parse(text));
  SHOAL_ASSIGN(fields, document.fields());
  int n = 1;
  SHOAL_TRY(fields.integer("n", 1, wire::kMaxChoices, n));
  for (const char* name : {"bootstrap_host", "bootstrap_port", "bootstrap_room"}) {
    if (fields.has(name)) return wire::field_error(name, "is this front's to set");
  }
  auto body = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!body.is_object()) return Status(ErrorCode::kInvalidArgument, "the body is not a JSON object");
  const std::size_t prompts = prompts_in(body);
  if (prompts > wire::kMaxPrompts)
    return wire::field_error("prompt", fmt::format("holds more than {} prompts", wire::kMaxPrompts));
  PairBodies bodies;
  SHOAL_TRY(fields.text("rid", bodies.rid));
  std::vector<std::uint64_t>& rooms = bodies.rooms;
  rooms.resize(prompts * static_cast<std::size_t>(n));
  for (std::uint64_t& room : rooms) room = draw_room();
  if (bodies.rid.empty()) bodies.rid = fmt::format("pair-{}", rooms.front());
  body["rid"] = bodies.rid;
  // Both draw the same numbers.
  if (!fields.has("seed")) body["seed"] = draw_room();
  body["bootstrap_host"] = bootstrap_host;
  body["bootstrap_port"] = bootstrap_port;
  if (rooms.size() == 1) {
    body["bootstrap_room"] = rooms.front();
  } else {
    body["bootstrap_room"] = rooms;
  }
  bodies.decode = body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  body["stream"] = false;
  body.erase("stream_options");
  bodies.prefill = body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return bodies;
}

// One client's request under way.
class PairFront::Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(PairFront& front, wire::HttpRequest request, wire::ResponsePtr response, const PairBodies& bodies)
      : front_(front),
        request_(std::move(request)),
        response_(std::move(response)),
        rid_(bodies.rid),
        rooms_(bodies.rooms),
        after_decode_(front.loop_) {}

  void start(PairBodies bodies) {
    response_->on_disconnect([loop = &front_.loop_, weak = weak_from_this()] {
      loop->post([weak] {
        if (const auto self = weak.lock()) self->client_gone();
      });
    });
    front_.http_.start(
        front_.call_to(front_.options_.prefill, request_, std::move(bodies.prefill)),
        {.on_head = [self = shared_from_this()](int status,
                                                const wire::HeaderList&) { self->prefill_.status = status; },
         .on_data = [self = shared_from_this()](std::string_view bytes) { return self->prefill_.add(bytes); },
         .on_end = [self = shared_from_this()](const Status& status) { self->prefill_ended(status); }});
    front_.http_.start(
        front_.call_to(front_.options_.decode, request_, std::move(bodies.decode)),
        {.on_head = [self = shared_from_this()](
                        int status,
                        const wire::HeaderList& headers) { self->decode_begins(status, headers); },
         .on_data = [self = shared_from_this()](std::string_view bytes) { return self->decode_says(bytes); },
         .on_end = [self = shared_from_this()](const Status& status) { self->decode_ended(status); }});
  }

 private:
  // A leg's answer where it is not relayed as it comes.
  struct Leg {
    int status = 0;
    std::string type = "application/json";
    std::string body;
    bool add(std::string_view bytes) {
      body += bytes;
      return body.size() <= std::size_t{64} << 20;
    }
  };

  void client_gone() {
    front_.end_leg(front_.options_.prefill, request_, rid_, rooms_);
    front_.end_leg(front_.options_.decode, request_, rid_, rooms_);
  }

  // The first to come answers.
  wire::ResponsePtr take_response() {
    const std::lock_guard lock(mutex_);
    return std::exchange(response_, nullptr);
  }

  // Its good answer is of no interest; its bad one is the client's, unless decode's is there.
  void prefill_ended(const Status& status) {
    prefill_over_ = true;
    after_decode_.cancel();
    if (status.ok() && prefill_.status == 200) return;
    const auto response = streaming_.load() ? nullptr : take_response();
    if (response != nullptr) {
      if (!status.ok()) {
        response->respond(wire::error_reply(
            Status(ErrorCode::kUnavailable, "the prefill worker failed: " + status.message())));
      } else {
        response->respond(prefill_.status, prefill_.type, prefill_.body.substr(0, kMostErrorBytes));
      }
    }
    front_.end_leg(front_.options_.decode, request_, rid_, rooms_);
  }

  void decode_begins(int status, const wire::HeaderList& headers) {
    decode_.status = status;
    for (const auto& [name, value] : headers) {
      if (name == "content-type") decode_.type = value;
    }
    if (status != 200 || !decode_.type.starts_with("text/event-stream")) return;
    streaming_.store(true);
    const std::lock_guard lock(mutex_);
    if (response_ != nullptr) response_->begin_stream(status, decode_.type, {{"Cache-Control", "no-cache"}});
  }

  bool decode_says(std::string_view bytes) {
    if (!streaming_.load()) return decode_.add(bytes);
    const std::lock_guard lock(mutex_);
    return response_ != nullptr && response_->write(bytes);
  }

  void decode_ended(const Status& status) {
    const bool good = status.ok() && decode_.status == 200;
    if (!prefill_over_)
      after_decode_.start(good ? kAfterDecode : std::chrono::milliseconds(0), [weak = weak_from_this()] {
        if (const auto self = weak.lock())
          self->front_.end_leg(self->front_.options_.prefill, self->request_, self->rid_, self->rooms_);
      });
    const auto response = take_response();
    if (response == nullptr) return;
    if (streaming_.load()) {
      // Dropped without an end the connection is cut: a torn stream is told from a whole one.
      if (good) response->end();
    } else if (!status.ok()) {
      response->respond(wire::error_reply(
          Status(ErrorCode::kUnavailable, "the decode worker failed: " + status.message())));
    } else {
      response->respond(decode_.status, decode_.type, decode_.body);
    }
  }

  PairFront& front_;
  const wire::HttpRequest request_;
  std::mutex mutex_;
  wire::ResponsePtr response_;
  const std::string rid_;
  const std::vector<std::uint64_t> rooms_;
  std::atomic<bool> streaming_{false};
  // The loop's.
  Leg prefill_;
  Leg decode_;
  bool prefill_over_ = false;
  wire::LoopTimer after_decode_;
};

PairFront::PairFront(Options options)
    : options_(std::move(options)), http_([this] {
        wire::HttpClientOptions on_loop;
        on_loop.loop = &loop_;
        return on_loop;
      }()) {}

wire::HttpCall PairFront::call_to(const wire::Url& worker, const wire::HttpRequest& request,
                                  std::string body) const {
  wire::HttpCall call;
  call.url = worker;
  call.url.path = worker.path + request.target;
  call.method = request.method;
  call.headers.emplace_back("X-Request-Id", request.request_id);
  for (const char* name : {"content-type", "authorization"}) {
    if (const auto value = request.header(name)) call.headers.emplace_back(name, *value);
  }
  call.body = std::move(body);
  call.deadline = call.idle_timeout = kLegTime;
  return call;
}

void PairFront::generate(const wire::HttpRequest& request, const wire::ResponsePtr& response) {
  auto bodies = pair_bodies(request.body, options_.prefill.host, options_.bootstrap_port);
  if (!bodies.ok()) return response->respond(wire::error_reply(bodies.error()));
  const auto exchange = std::make_shared<Exchange>(*this, request, response, *bodies);
  exchange->start(*std::move(bodies));
}

// On a connection of its own it may come before the leg: that one's rooms are over then.
void PairFront::end_leg(const wire::Url& worker, const wire::HttpRequest& request, const std::string& rid,
                        const std::vector<std::uint64_t>& rooms) {
  wire::HttpRequest abort = request;
  abort.method = "POST";
  abort.target = "/abort_request";
  wire::HttpCall call = call_to(worker, abort,
                                nlohmann::json{{"rid", rid}, {"bootstrap_room", rooms}}.dump(
                                    -1, ' ', false, nlohmann::json::error_handler_t::replace));
  call.deadline = call.idle_timeout = std::chrono::seconds(5);
  http_.start(std::move(call), {.on_head = [](int, const wire::HeaderList&) {},
                                .on_data = [](std::string_view) { return true; },
                                .on_end = [](const Status&) {}});
}

void PairFront::abort(const wire::HttpRequest& request, const wire::ResponsePtr& response) {
  http_.start(call_to(options_.prefill, request, request.body),
              {.on_head = [](int, const wire::HeaderList&) {},
               .on_data = [](std::string_view) { return true; },
               .on_end = [](const Status&) {}});
  relay(request, response);
}

void PairFront::relay(const wire::HttpRequest& request, const wire::ResponsePtr& response) {
  struct Answer {
    int status = 0;
    std::string type = "application/json";
    std::string body;
  };
  const auto answer = std::make_shared<Answer>();
  http_.start(call_to(options_.decode, request, request.body),
              {.on_head =
                   [answer](int status, const wire::HeaderList& headers) {
                     answer->status = status;
                     for (const auto& [name, value] : headers) {
                       if (name == "content-type") answer->type = value;
                     }
                   },
               .on_data =
                   [answer](std::string_view bytes) {
                     answer->body += bytes;
                     return answer->body.size() <= std::size_t{64} << 20;
                   },
               .on_end =
                   [answer, response](const Status& status) {
                     if (status.ok()) return response->respond(answer->status, answer->type, answer->body);
                     response->respond(wire::error_reply(
                         Status(ErrorCode::kUnavailable, "the decode worker failed: " + status.message())));
                   }});
}

void PairFront::health(const wire::ResponsePtr& response) {
  struct Both {
    std::mutex mutex;
    int left = 2;
    std::string ill;
  };
  const auto both = std::make_shared<Both>();
  for (const auto& [name, worker] : {std::pair{"prefill", options_.prefill}, {"decode", options_.decode}}) {
    wire::HttpRequest ask;
    ask.method = "GET";
    ask.target = "/health";
    wire::HttpCall call = call_to(worker, ask, "");
    call.deadline = call.idle_timeout = std::chrono::seconds(5);
    const auto status = std::make_shared<int>(0);
    http_.start(std::move(call),
                {.on_head = [status](int code, const wire::HeaderList&) { *status = code; },
                 .on_data = [](std::string_view) { return true; },
                 .on_end =
                     [both, status, response, name = name](const Status& end) {
                       const std::lock_guard lock(both->mutex);
                       if (!end.ok() || *status != 200)
                         both->ill = fmt::format("the {} worker is not well{}{}", name, end.ok() ? "" : ": ",
                                                 end.message());
                       if (--both->left > 0) return;
                       if (both->ill.empty()) {
                         response->respond(200, "application/json", R"({"status":"ok"})");
                       } else {
                         response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, both->ill)));
                       }
                     }});
  }
}

}  // namespace shoal::cli
