#include "gateway/worker_prober.h"

#include <fmt/format.h>

#include <utility>

#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/worker_report.h"

namespace shoal::gateway {
namespace {

constexpr std::size_t kMaxAnswer = 1024 * 1024;
constexpr std::size_t kMaxModels = 1024;
constexpr int kForgetLeases = 10;

// Of OpenAI's list.
Expected<std::vector<std::string>> read_models(const std::string& body) {
  SHOAL_ASSIGN(document, wire::JsonDocument::parse(body));
  simdjson::dom::array list;
  if (document.root()["data"].get_array().get(list) != simdjson::SUCCESS)
    return Status(ErrorCode::kCorrupt, "its /v1/models is no list of models");
  std::vector<std::string> models;
  for (const wire::JsonElement each : list) {
    std::string_view id;
    if (each["id"].get_string().get(id) == simdjson::SUCCESS && !id.empty() && models.size() < kMaxModels)
      models.emplace_back(id);
  }
  return models;
}

}  // namespace

void WorkerProber::tick(TimePoint now) {
  // By copy: what a lost worker's requests do next may change the list.
  const std::vector<WorkerPtr> workers = registry_.workers();
  for (const WorkerPtr& worker : workers) {
    if (worker->source == WorkerSource::kRegistered) {
      check_lease(worker, now);
      continue;
    }
    ProbePtr& probe = probes_[worker.get()];
    if (probe == nullptr || probe->worker.lock() != worker) {
      probe = std::make_shared<Probe>();
      probe->worker = worker;
    }
    if (probe->asked || now < probe->due) continue;
    ask(probe, worker, probe->plain ? "/health" : "/worker_report");
  }
  if (probes_.size() > workers.size())
    std::erase_if(probes_, [](const auto& each) { return each.second->worker.expired(); });
}

void WorkerProber::check_lease(const WorkerPtr& worker, TimePoint now) {
  const auto silent = now - worker->heard;
  if (silent > options_.lease * kForgetLeases) {
    registry_.remove(worker, "its lease has run out");
  } else if (silent > options_.lease && worker->health == WorkerHealth::kUp) {
    registry_.set_down(
        worker, fmt::format("it has said nothing for {:.1f} s", seconds_between(worker->heard, now)), true);
  }
}

void WorkerProber::ask(const ProbePtr& probe, const WorkerPtr& worker, const char* path) {
  probe->asked = true;
  wire::HttpCall call;
  call.url = worker->url;
  call.url.path += path;
  call.connect_timeout = call.idle_timeout = call.deadline = options_.patience;
  if (!options_.api_key.empty()) call.headers.emplace_back("Authorization", "Bearer " + options_.api_key);
  struct Answer {
    int code = 0;
    std::string body;
  };
  const auto answer = std::make_shared<Answer>();
  client_.start(std::move(call), {[answer](int code, const wire::HeaderList&) { answer->code = code; },
                                  [answer](std::string_view bytes) {
                                    if (answer->body.size() + bytes.size() > kMaxAnswer) return false;
                                    answer->body += bytes;
                                    return true;
                                  },
                                  [this, probe, answer, path = std::string(path)](const Status& status) {
                                    answered(probe, path, status, answer->code, answer->body);
                                  }});
}

void WorkerProber::answered(const ProbePtr& probe, const std::string& path, const Status& status, int code,
                            const std::string& body) {
  probe->asked = false;
  const WorkerPtr worker = probe->worker.lock();
  if (worker == nullptr || !registry_.holds(worker) || worker->source == WorkerSource::kRegistered) return;
  probe->due = now() + (probe->plain ? options_.plain_interval : options_.interval);
  if (!status.ok()) {
    missed(probe, worker, status);
    return;
  }
  probe->failures = 0;
  if (path == wire::kWorkerReportPath) {
    take_report(probe, worker, code, body);
  } else if (path == "/health") {
    // Engines without the route are as well as their answers.
    if (code == 200 || code == 404 || code == 405) {
      ask(probe, worker, "/v1/models");
    } else {
      registry_.set_down(worker, fmt::format("its /health says {}", code), false);
    }
  } else {
    take_models(probe, worker, code, body);
  }
}

void WorkerProber::take_report(const ProbePtr& probe, const WorkerPtr& worker, int code,
                               const std::string& body) {
  if (code == 401 || code == 403) {
    registry_.set_down(worker, "it wants an API key: give it with --worker-api-key-file", false);
    return;
  }
  if (code == 503) {  // whatever it is, it says so of all its routes while it loads
    registry_.set_down(worker, wire::error_message_of(body), false);
    return;
  }
  if (code != 200) {
    probe->plain = true;
    ask(probe, worker, "/health");
    return;
  }
  auto report = wire::WorkerReport::parse(body);
  if (report.ok()) {
    registry_.apply(worker, *std::move(report), now());
  } else {
    registry_.set_down(worker, "its report cannot be read: " + report.error().message(), false);
  }
}

void WorkerProber::take_models(const ProbePtr& probe, const WorkerPtr& worker, int code,
                               const std::string& body) {
  // What has been started anew on that port may be another kind of engine.
  probe->plain = code == 200;
  if (code != 200) {
    registry_.set_down(worker, fmt::format("its /v1/models says {}", code), false);
    return;
  }
  auto models = read_models(body);
  if (models.ok()) {
    registry_.apply_plain(worker, *std::move(models), now());
  } else {
    registry_.set_down(worker, models.error().message(), false);
  }
}

void WorkerProber::missed(const ProbePtr& probe, const WorkerPtr& worker, const Status& why) {
  ++probe->failures;
  probe->plain = false;
  const bool silent = why.code() == ErrorCode::kDeadline;
  if (silent && probe->failures == 1) {
    probe->due = now();  // at once: it may only have been busy
    return;
  }
  registry_.set_down(worker, why.message(), true);
}

}  // namespace shoal::gateway
