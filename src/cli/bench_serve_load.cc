#include "cli/bench_serve_load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/error_output.h"
#include "core/clock.h"
#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/sse_reader.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kPromptStream =
    0x70726f6d70740000;  // keeps prompts apart from arrivals under one seed

// In (0, 1]; drawn the same way everywhere, unlike the standard's distributions.
double unit(std::mt19937_64& random) { return (static_cast<double>(random() >> 11) + 1) * 0x1.0p-53; }

struct Tally {
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0;
  int failed = 0;
  std::atomic<std::int64_t> tokens{0};
};

void read_usage(const wire::JsonElement& event, LoadRecord& record) {
  const auto read = [](simdjson::simdjson_result<wire::JsonElement> field, int& out) {
    std::int64_t value = 0;
    if (field.get_int64().get(value) == simdjson::SUCCESS) out = static_cast<int>(value);
  };
  read(event["usage"]["prompt_tokens"], record.prompt_tokens);
  read(event["usage"]["completion_tokens"], record.completion_tokens);
  read(event["usage"]["prompt_tokens_details"]["cached_tokens"], record.cached_tokens);
}

// The events of one answer. Lives on the client's thread.
class AnswerReader {
 public:
  AnswerReader(LoadRecord& record, Tally& tally, TimePoint start)
      : record_(record), tally_(tally), start_(start), sse_([this](std::string_view data) { take(data); }) {}

  void head(int status) { status_ = status; }

  bool data(std::string_view bytes) {
    if (status_ == 200) return sse_.push(bytes);
    if (refusal_.size() < 4096) refusal_ += bytes;
    return true;
  }

  void end(const Status& status) {
    record_.end = seconds_between(start_, now());
    if (!status.ok()) {
      record_.error = status.message();
    } else if (status_ != 200) {
      record_.error = fmt::format("{}: {}", status_, wire::error_message_of(refusal_));
    } else if (!done_ && record_.error.empty()) {
      record_.error = "the stream ended without [DONE]";
    } else if (record_.tokens.empty() && record_.error.empty()) {
      record_.error = "the stream held no tokens";
    }
    // Notified under the lock: whoever waits for the last answer destroys the tally.
    std::scoped_lock lock(tally_.mutex);
    ++tally_.done;
    if (!record_.error.empty()) ++tally_.failed;
    tally_.changed.notify_all();
  }

 private:
  void take(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const auto event = wire::JsonDocument::parse(data);
    if (!event.ok()) {
      record_.error = "an event is no JSON";
      return;
    }
    if (event->root()["error"].error() == simdjson::SUCCESS) {
      record_.error = wire::error_message_of(data);
      return;
    }
    read_usage(event->root(), record_);
    if (!has_tokens(event->root())) return;
    record_.tokens.push_back(seconds_between(start_, now()));
    ++tally_.tokens;
  }

  // The role chunk, finish chunk and usage chunk carry none.
  static bool has_tokens(const wire::JsonElement& event) {
    const auto choice = event["choices"].at(0);
    if (choice.error() != simdjson::SUCCESS) return false;
    if (choice["delta"]["role"].error() == simdjson::SUCCESS) return false;
    wire::JsonElement reason;
    if (choice["finish_reason"].get(reason) != simdjson::SUCCESS || reason.is_null()) return true;
    std::string_view text;
    const auto piece =
        choice["text"].error() == simdjson::SUCCESS ? choice["text"] : choice["delta"]["content"];
    return piece.get_string().get(text) == simdjson::SUCCESS && !text.empty();
  }

  LoadRecord& record_;
  Tally& tally_;
  const TimePoint start_;
  wire::SseReader sse_;
  std::string refusal_;
  int status_ = 0;
  bool done_ = false;
};

wire::HttpCall call_of(const LoadPlan& plan, std::size_t i) {
  const LoadPrompt prompt = plan.make_prompt ? plan.make_prompt(i) : plan.prompts[i % plan.prompts.size()];
  wire::HttpCall call;
  call.url = plan.targets[i % plan.targets.size()];
  while (call.url.path.ends_with('/')) call.url.path.pop_back();
  if (call.url.path.ends_with("/v1")) call.url.path.resize(call.url.path.size() - 3);
  call.url.path += prompt.path;
  call.method = "POST";
  call.headers = {{"Content-Type", "application/json"}};
  if (!plan.api_key.empty()) call.headers.emplace_back("Authorization", "Bearer " + plan.api_key);
  call.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(plan.deadline * 1000));
  call.idle_timeout = call.deadline;
  ordered_json body = ordered_json::parse(prompt.body);
  body["max_tokens"] = plan.output_tokens.empty() ? plan.max_tokens : plan.output_tokens[i];
  body["ignore_eos"] = plan.ignore_eos;
  body["seed"] = plan.seed + i;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  call.body = body.dump();
  return call;
}

class Progress {
 public:
  Progress(bool wanted, std::size_t total) : shown_(wanted && ::isatty(STDERR_FILENO) == 1), total_(total) {}
  ~Progress() {
    if (shown_) print_error("\r\x1b[K");
  }

  void show(std::size_t sent, int done, int failed, std::int64_t tokens, double seconds) {
    if (!shown_ || seconds < next_) return;
    next_ = seconds + 0.5;
    print_error("\r\x1b[K{:5.1f} s  sent {}/{}  running {}  failed {}  {:.1f} tokens/s", seconds, sent,
                total_, sent - static_cast<std::size_t>(done), failed,
                static_cast<double>(tokens) / std::max(seconds, 0.1));
    std::fflush(stderr);
  }

 private:
  const bool shown_;
  const std::size_t total_;
  double next_ = 0;
};

// The prompt of one line, or an empty path.
LoadPrompt prompt_of(const ordered_json& line) {
  const auto chat = [](const ordered_json& text) {
    ordered_json body;
    body["messages"] = ordered_json::array({{{"role", "user"}, {"content", text}}});
    return LoadPrompt{"/v1/chat/completions", body.dump()};
  };
  if (!line.is_object()) return {};
  if (line.contains("messages")) {
    return {"/v1/chat/completions", ordered_json{{"messages", line["messages"]}}.dump()};
  }
  if (line.contains("prompt")) return {"/v1/completions", ordered_json{{"prompt", line["prompt"]}}.dump()};
  if (line.contains("turns") && line["turns"].is_array() && !line["turns"].empty())
    return chat(line["turns"][0]);
  if (line.contains("question")) return chat(line["question"]);
  return {};
}

}  // namespace

std::vector<double> poisson_arrivals(double rate, int count, double duration, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> arrivals;
  double at = 0;
  while (count > 0 ? arrivals.size() < static_cast<std::size_t>(count) : at <= duration) {
    arrivals.push_back(at);
    at += -std::log(unit(random)) / rate;
  }
  return arrivals;
}

std::vector<LoadPrompt> synthetic_prompts(int count, int least, int most, int vocabulary,
                                          std::uint64_t seed) {
  std::mt19937_64 random(seed ^ kPromptStream);
  // Low ids are control tokens in every vocabulary here.
  constexpr int kFirstId = 3;
  std::vector<LoadPrompt> prompts;
  for (int i = 0; i < count; ++i) {
    const auto length =
        static_cast<std::size_t>(least) + random() % static_cast<std::size_t>(most - least + 1);
    std::vector<int> ids(length);
    for (int& id : ids)
      id = kFirstId + static_cast<int>(random() % static_cast<std::uint64_t>(vocabulary - kFirstId));
    prompts.push_back({"/v1/completions", ordered_json{{"prompt", ids}}.dump()});
  }
  return prompts;
}

Expected<std::vector<LoadPrompt>> read_prompts(const std::string& file) {
  std::ifstream in(file);
  if (!in) return Status(ErrorCode::kIo, fmt::format("{}: cannot be read", file));
  std::vector<LoadPrompt> prompts;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    // Parsed strictly first: nlohmann has no depth limit of its own.
    const auto strict = wire::JsonDocument::parse(line);
    if (!strict.ok()) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{}: line {} is not valid JSON", file, number));
    }
    LoadPrompt prompt = prompt_of(ordered_json::parse(line, nullptr, false));
    if (prompt.path.empty()) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("{}: line {} has none of messages, prompt, turns, question", file, number));
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return Status(ErrorCode::kInvalidArgument, fmt::format("{}: holds no prompts", file));
  return prompts;
}

std::vector<LoadRecord> run_load(const LoadPlan& plan) {
  const std::size_t count = plan.arrivals.size();
  std::vector<LoadRecord> records(count);
  Tally tally;
  Progress progress(plan.show_progress, count);
  wire::HttpClientOptions options;
  options.tls = plan.tls;
  options.max_idle = plan.keep_alive ? 4096 : 0;
  wire::HttpClient client(std::move(options));  // last: its thread is joined before the records go
  const TimePoint start = now();

  std::size_t sent = 0;
  std::unique_lock lock(tally.mutex);
  const auto report = [&] {
    progress.show(sent, tally.done, tally.failed, tally.tokens, seconds_between(start, now()));
  };
  while (sent < count) {
    const TimePoint due = start + std::chrono::duration_cast<Clock::duration>(Seconds(plan.arrivals[sent]));
    while (now() < due) {
      tally.changed.wait_until(lock, std::min(due, now() + std::chrono::milliseconds(500)));
      report();
    }
    lock.unlock();
    LoadRecord& record = records[sent];
    record.due = plan.arrivals[sent];
    wire::HttpCall call = call_of(plan, sent);
    record.sent = seconds_between(start, now());
    const auto reader = std::make_shared<AnswerReader>(record, tally, start);
    client.start(std::move(call), {[reader](int status, const wire::HeaderList&) { reader->head(status); },
                                   [reader](std::string_view bytes) { return reader->data(bytes); },
                                   [reader](const Status& status) { reader->end(status); }});
    ++sent;
    lock.lock();
    report();
  }
  // Ends: every call has a deadline.
  while (tally.done < static_cast<int>(count)) {
    tally.changed.wait_for(lock, std::chrono::milliseconds(500));
    report();
  }
  return records;
}

}  // namespace shoal::cli
