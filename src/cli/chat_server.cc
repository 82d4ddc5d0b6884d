#include "cli/chat_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/sse_reader.h"

namespace shoal::cli {
namespace {

constexpr std::size_t kMaxWholeAnswer = 16 * 1024 * 1024;
constexpr std::size_t kMaxModelList = 16 * 1024 * 1024;
constexpr std::chrono::hours kLongestAnswer{24};
constexpr std::chrono::milliseconds kLongestModelList{30'000};

// Tells the waiting thread that the answer has ended.
class Bell {
 public:
  Bell() : fd_(::eventfd(0, EFD_CLOEXEC)) {}
  ~Bell() { ::close(fd_); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Runs one call to its end, or cuts it where stop_fd becomes readable; true then.
bool run_call(const std::shared_ptr<wire::TlsContext>& tls, wire::HttpCall call,
              wire::HttpClient::Callbacks callbacks, int stop_fd) {
  const Bell ended;
  callbacks.on_end = [&ended, on_end = std::move(callbacks.on_end)](const Status& status) {
    on_end(status);
    ended.ring();
  };
  wire::HttpClient client(tls);  // its end cuts what still runs
  client.start(std::move(call), std::move(callbacks));
  // Every wait of the call has its deadline, so this one ends too.
  pollfd waits[] = {{ended.fd(), POLLIN, 0}, {stop_fd, POLLIN, 0}};
  for (;;) {
    if (::poll(waits, 2, -1) <= 0) continue;
    if (waits[0].revents != 0) return false;
    if (waits[1].revents != 0) return true;
  }
}

std::optional<std::string_view> text_of(simdjson::simdjson_result<wire::JsonElement> field) {
  std::string_view text;
  if (field.get_string().get(text) != simdjson::SUCCESS) return std::nullopt;
  return text;
}

// Reads one answer, streamed or whole. Lives on the client's thread until that has been joined.
class AnswerReader {
 public:
  explicit AnswerReader(const ChatServer::OnPiece& on_piece)
      : on_piece_(on_piece), sse_([this](std::string_view data) { take_event(data); }) {}

  void head(int status, const wire::HeaderList& headers) {
    http_status_ = status;
    for (const auto& [name, value] : headers) {
      if (name == "content-type") streams_ = wire::to_lower(value).starts_with("text/event-stream");
    }
  }

  bool data(std::string_view bytes) {
    if (http_status_ == 200 && streams_) {
      if (!sse_.push(bytes)) fail("the server sent an event without end");
      return answer_.status.ok() && !done_;
    }
    if (body_.size() + bytes.size() > kMaxWholeAnswer) {
      fail("the server's answer is too long");
      return false;
    }
    body_ += bytes;
    return true;
  }

  void end(const Status& status) {
    if (!answer_.status.ok()) return;
    // The reader itself cut a stream that said all it had to say.
    if (!status.ok() && !done_) {
      answer_.status = status;
    } else if (http_status_ != 200) {
      fail(fmt::format("the server answered {}: {}", http_status_, wire::error_message_of(body_)));
    } else if (!streams_) {
      take_whole();
    } else if (!done_ && answer_.finish_reason.empty()) {
      fail("the server's answer broke off");
    } else if (pieces_ == 0 && answer_.finish_reason.empty()) {
      fail("the server ended its answer before it began");
    }
    if (!answer_.status.ok()) return;
    if (answer_.finish_reason == "content_filter") fail("the server's content filter ended the answer");
    if (answer_.finish_reason == "tool_calls") fail("the model asks for tools, and a chat has none");
  }

  ChatAnswer take() {
    if (!answer_.counted) answer_.tokens = pieces_;
    if (pieces_ > 0) {
      answer_.first_seconds = seconds_between(begun_, first_);
      answer_.rest_seconds = seconds_between(first_, last_);
    }
    return std::move(answer_);
  }

 private:
  void fail(std::string why) { answer_.status = Status(ErrorCode::kUnavailable, std::move(why)); }

  void take_event(std::string_view data) {
    if (done_ || !answer_.status.ok()) return;
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const auto event = wire::JsonDocument::parse(data);
    if (!event.ok()) return fail("the server sent an event that is no JSON");
    const wire::JsonElement root = event->root();
    if (take_error(root, data)) return;
    const auto choice = root["choices"].at(0);
    const auto delta = choice["delta"];
    for (const char* name : {"reasoning_content", "reasoning"}) {
      if (const auto text = text_of(delta[name])) add(ChatServer::Piece::kReasoning, *text);
    }
    if (const auto text = text_of(delta["content"])) add(ChatServer::Piece::kText, *text);
    if (const auto reason = text_of(choice["finish_reason"])) answer_.finish_reason = *reason;
    take_usage(root);
  }

  void take_whole() {
    const auto answer = wire::JsonDocument::parse(body_);
    if (!answer.ok()) return fail("the server's answer is no JSON");
    const wire::JsonElement root = answer->root();
    if (take_error(root, body_)) return;
    const auto choice = root["choices"].at(0);
    const auto text = text_of(choice["message"]["content"]);
    if (!text) return fail("the server's answer holds no message");
    add(ChatServer::Piece::kText, *text);
    answer_.finish_reason = text_of(choice["finish_reason"]).value_or("stop");
    take_usage(root);
  }

  bool take_error(const wire::JsonElement& root, std::string_view text) {
    wire::JsonElement error;
    if (root["error"].get(error) != simdjson::SUCCESS || error.is_null()) return false;
    fail("the server says: " + wire::error_message_of(text));
    return true;
  }

  void take_usage(const wire::JsonElement& root) {
    std::int64_t tokens = 0;
    if (root["usage"]["completion_tokens"].get_int64().get(tokens) != simdjson::SUCCESS) return;
    answer_.counted = true;
    answer_.tokens = static_cast<int>(tokens);
  }

  void add(ChatServer::Piece kind, std::string_view text) {
    if (text.empty()) return;
    last_ = now();
    if (pieces_++ == 0) first_ = last_;
    if (kind == ChatServer::Piece::kText) answer_.text += text;
    on_piece_(kind, text);
  }

  const ChatServer::OnPiece& on_piece_;
  wire::SseReader sse_;
  ChatAnswer answer_;
  std::string body_;
  int http_status_ = 0;
  int pieces_ = 0;
  bool streams_ = false;
  bool done_ = false;
  const TimePoint begun_ = now();
  TimePoint first_{};
  TimePoint last_{};
};

}  // namespace

double ChatAnswer::tokens_per_second() const {
  return tokens > 1 && rest_seconds > 0 ? (tokens - 1) / rest_seconds : 0;
}

Expected<ChatServer> ChatServer::at(Options options) {
  SHOAL_ASSIGN(api, wire::Url::parse(options.url));
  while (api.path.ends_with('/')) api.path.pop_back();
  if (api.path.empty()) api.path = "/v1";
  for (const char c : options.api_key) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) {
      return Status(ErrorCode::kInvalidArgument, "the API key holds a space or control character");
    }
  }
  return ChatServer(std::move(options), std::move(api));
}

wire::HttpCall ChatServer::call(std::string_view path) const {
  wire::HttpCall call;
  call.url = api_;
  call.url.path += path;
  call.headers = {{"Accept", "application/json, text/event-stream"}};
  if (!options_.api_key.empty()) call.headers.emplace_back("Authorization", "Bearer " + options_.api_key);
  return call;
}

Expected<std::vector<std::string>> ChatServer::models(int stop_fd) const {
  wire::HttpCall asked = call("/models");
  asked.deadline = std::min(options_.silence, kLongestModelList);
  wire::HttpAnswer answer;
  Status failed;
  const bool stopped = run_call(options_.tls, std::move(asked),
                                {[&](int status, const wire::HeaderList&) { answer.status = status; },
                                 [&](std::string_view bytes) {
                                   answer.body += bytes;
                                   return answer.body.size() <= kMaxModelList;
                                 },
                                 [&](const Status& status) { failed = status; }},
                                stop_fd);
  if (stopped) return Status(ErrorCode::kCancelled, "stopped");
  if (answer.body.size() > kMaxModelList) {
    return Status(ErrorCode::kUnavailable, name() + "'s list of models is too long");
  }
  if (!failed.ok()) return failed;
  if (answer.status != 200) {
    return Status(ErrorCode::kUnavailable,
                  fmt::format("{} answered {} to {}/models: {}", name(), answer.status, api_.path,
                              wire::error_message_of(answer.body)));
  }
  const Status no_list(
      ErrorCode::kUnavailable,
      fmt::format("{} answered {}/models with something else than a list of models", name(), api_.path));
  const auto document = wire::JsonDocument::parse(answer.body);
  simdjson::dom::array list;
  if (!document.ok() || document->root()["data"].get_array().get(list) != simdjson::SUCCESS) return no_list;
  std::vector<std::string> models;
  for (const wire::JsonElement model : list) {
    const auto id = text_of(model["id"]);
    if (!id) return no_list;
    models.emplace_back(*id);
  }
  return models;
}

ChatAnswer ChatServer::ask(std::string body, const OnPiece& on_piece, int stop_fd) const {
  wire::HttpCall asked = call("/chat/completions");
  asked.method = "POST";
  asked.headers.emplace_back("Content-Type", "application/json");
  asked.body = std::move(body);
  asked.idle_timeout = options_.silence;
  asked.deadline = kLongestAnswer;

  AnswerReader reader(on_piece);
  const bool stopped =
      run_call(options_.tls, std::move(asked),
               {[&](int status, const wire::HeaderList& headers) { reader.head(status, headers); },
                [&](std::string_view bytes) { return reader.data(bytes); },
                [&](const Status& status) { reader.end(status); }},
               stop_fd);
  ChatAnswer answer = reader.take();
  if (stopped && answer.finish_reason.empty()) answer.status = Status(ErrorCode::kCancelled, "stopped");
  return answer;
}

std::string printable(std::string_view text) {
  constexpr std::string_view kInstead = "\xef\xbf\xbd";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls are 0xc2 0x80 to 0xc2 0x9f; some terminals obey them.
    const bool c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c1) ++i;
    if (c1 || byte == 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t')) {
      out += kInstead;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace shoal::cli
