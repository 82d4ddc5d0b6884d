#include "gateway/worker_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/log.h"

namespace shoal::gateway {
namespace {

constexpr double kRateForget = 0.9;
// Shorter prompts tell of overheads, not of speed.
constexpr double kLeastRateTokens = 64;

constexpr std::size_t kMostDismissed = 1024;

policy::WorkerRole role_of(const std::string& role) {
  if (role == "prefill") return policy::WorkerRole::kPrefill;
  if (role == "decode") return policy::WorkerRole::kDecode;
  return policy::WorkerRole::kBoth;
}

std::string name_of_url(const wire::Url& url) {
  return fmt::format("http{}://{}{}", url.tls ? "s" : "", url.authority(), url.path);
}

Expected<wire::Url> parse_worker_url(std::string_view text) {
  SHOAL_ASSIGN(url, wire::Url::parse(text));
  while (url.path.ends_with('/')) url.path.pop_back();
  // Many name an API by its /v1; routes bring their own.
  if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
  return std::move(url);
}

}  // namespace

const char* name_of(WorkerSource source) {
  switch (source) {
    case WorkerSource::kStatic:
      return "static";
    case WorkerSource::kFile:
      return "file";
    case WorkerSource::kAdmin:
      return "admin";
    case WorkerSource::kRegistered:
      return "registered";
  }
  return "static";
}

const char* name_of(WorkerHealth health) {
  switch (health) {
    case WorkerHealth::kUnknown:
      return "unknown";
    case WorkerHealth::kUp:
      return "up";
    case WorkerHealth::kDown:
      return "down";
  }
  return "unknown";
}

policy::WorkerRole Worker::role() const { return report ? role_of(report->role) : named_role; }

Reservation::Reservation(WorkerRegistry& registry, WorkerPtr worker, double tokens, double pages)
    : registry_(&registry),
      worker_(std::move(worker)),
      tokens_(tokens),
      pages_(pages),
      generation_(worker_->generation) {}

Reservation::Reservation(Reservation&& other) noexcept
    : registry_(other.registry_),
      worker_(std::move(other.worker_)),
      tokens_(std::exchange(other.tokens_, 0)),
      pages_(other.pages_),
      generation_(other.generation_) {
  other.worker_ = nullptr;
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  registry_ = other.registry_;
  worker_ = std::move(other.worker_);
  other.worker_ = nullptr;
  tokens_ = std::exchange(other.tokens_, 0);
  pages_ = other.pages_;
  generation_ = other.generation_;
  return *this;
}

void Reservation::first_token() {
  if (worker_ == nullptr || tokens_ == 0) return;
  // A worker that has left the registry has no view any more.
  if (registry_->holds(worker_)) {
    policy::WorkerView& view = registry_->views_[worker_->index];
    view.reserved_tokens = std::max(0.0, view.reserved_tokens - tokens_);
    if (generation_ == worker_->generation)
      view.reserved_since_report = std::max(0.0, view.reserved_since_report - tokens_);
  }
  tokens_ = 0;
}

void Reservation::release() {
  if (worker_ == nullptr) return;
  first_token();
  const WorkerPtr worker = std::move(worker_);
  worker_ = nullptr;
  if (!registry_->holds(worker)) return;
  policy::WorkerView& view = registry_->views_[worker->index];
  --view.in_flight;
  if (generation_ == worker->generation) {
    --view.in_flight_since_report;
    view.pages_since_report = std::max(0.0, view.pages_since_report - pages_);
  }
  if (worker->leaving) registry_->remove_if_done(worker);
}

Expected<WorkerPtr> WorkerRegistry::add(std::string_view text, WorkerSource source, const WorkerName& as) {
  SHOAL_ASSIGN(url, parse_worker_url(text));
  const std::string name = name_of_url(url);
  if (source == WorkerSource::kAdmin) dismissed_.erase(name);
  if (WorkerPtr known = find(name)) {
    // Others than flags name no role.
    if (source == WorkerSource::kStatic && known->named_role != as.role)
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} is named in two roles", name));
    if (as.bootstrap_port != 0 && known->bootstrap_port != as.bootstrap_port)
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} is named with two bootstrap ports", name));
    known->leaving = false;
    return known;
  }
  auto worker = std::make_shared<Worker>();
  worker->url = std::move(url);
  worker->name = name;
  worker->id = next_id_++;
  worker->source = source;
  worker->named_role = as.role;
  worker->bootstrap_port = as.bootstrap_port;
  worker->why = "it has not been heard of yet";
  worker->breaker = policy::Breaker(breaker_);
  worker->index = static_cast<std::uint32_t>(workers_.size());
  workers_.push_back(worker);
  views_.emplace_back();
  views_.back().id = worker->id;
  views_.back().role = as.role;
  by_model_stale_ = true;
  log(LogLevel::kInfo, "worker.added", "worker={} source={}", name, name_of(source));
  return worker;
}

WorkerPtr WorkerRegistry::find(std::string_view text) const {
  const auto url = parse_worker_url(text);
  if (!url.ok()) return nullptr;
  const std::string name = name_of_url(*url);
  const auto it =
      std::ranges::find_if(workers_, [&](const WorkerPtr& worker) { return worker->name == name; });
  return it == workers_.end() ? nullptr : *it;
}

void WorkerRegistry::leave(const WorkerPtr& worker) {
  worker->leaving = true;
  refresh(*worker, now());
  remove_if_done(worker);
}

void WorkerRegistry::remove_if_done(const WorkerPtr& worker) {
  if (worker->users.empty()) remove(worker, "it has left");
}

void WorkerRegistry::remove(const WorkerPtr& worker, const std::string& why) {
  if (!holds(worker)) return;
  const std::uint32_t index = worker->index;
  workers_[index] = workers_.back();
  workers_[index]->index = index;
  views_[index] = views_.back();
  workers_.pop_back();
  views_.pop_back();
  by_model_stale_ = true;
  worker->health = WorkerHealth::kDown;
  log(LogLevel::kInfo, "worker.removed", "worker={} why=\"{}\"", worker->name, why);
  tell_lost(*worker, why);
}

void WorkerRegistry::dismiss(const WorkerPtr& worker) {
  if (worker->source != WorkerSource::kRegistered || !worker->report) return;
  if (dismissed_.size() >= kMostDismissed) dismissed_.erase(dismissed_.begin());
  dismissed_[worker->name] = worker->report->instance;
}

bool WorkerRegistry::is_dismissed(std::string_view text, const std::string& instance) const {
  const auto url = parse_worker_url(text);
  if (!url.ok()) return false;
  const auto it = dismissed_.find(name_of_url(*url));
  return it != dismissed_.end() && it->second == instance;
}

void WorkerRegistry::tell_lost(Worker& worker, const std::string& why) {
  // Each leaves the set as it is told.
  const std::vector<WorkerUser*> users(worker.users.begin(), worker.users.end());
  for (WorkerUser* user : users) {
    if (worker.users.contains(user)) user->on_worker_lost(why);
  }
}

void WorkerRegistry::set_draining(const WorkerPtr& worker, bool draining) {
  worker->draining = draining;
  log(LogLevel::kInfo, "worker.draining", "worker={} draining={}", worker->name, draining);
  refresh(*worker, now());
}

void WorkerRegistry::apply(const WorkerPtr& worker, wire::WorkerReport report, TimePoint now) {
  const bool successor = worker->report && worker->report->instance != report.instance;
  // Out of order: a later one has been heard already.
  if (worker->report && !successor && report.sequence <= worker->report->sequence) return;
  if (successor) tell_lost(*worker, "its process has been started anew");
  if (!holds(worker)) return;  // it was leaving, and those just told were its last
  const bool stuck = report.state == "stuck";
  set_models(*worker, report.models);
  worker->plain = false;
  worker->heard = now;
  ++worker->generation;
  policy::WorkerView& view = views_[worker->index];
  set_role(*worker, role_of(report.role));
  // Of the hash 0 is that of plain engines, which do not say what they have loaded.
  view.kind = std::hash<std::string>()(report.fingerprint) | 1;
  if (report.bootstrap_port != 0) worker->bootstrap_port = static_cast<std::uint16_t>(report.bootstrap_port);
  view.pages = report.pages;
  view.max_sequences = static_cast<std::int32_t>(std::min<std::int64_t>(report.max_sequences, 1 << 20));
  view.load =
      policy::WorkerLoad{now, static_cast<std::int32_t>(std::min<std::int64_t>(report.running, 1 << 20)),
                         static_cast<std::int32_t>(std::min<std::int64_t>(report.waiting, 1 << 20)),
                         report.uncached_tokens, report.free_pages};
  view.reserved_since_report = 0;
  view.in_flight_since_report = 0;
  view.pages_since_report = 0;
  const std::string state = report.state;
  const std::string why = report.why.empty() ? "it is " + state : report.why;
  worker->report = std::move(report);
  if (state != "ready") {
    set_down(worker, why, stuck);
    return;
  }
  if (worker->named_role != policy::WorkerRole::kBoth && worker->named_role != view.role) {
    set_down(worker,
             fmt::format("it was named as a {} worker, and says that its role is {}",
                         policy::name_of(worker->named_role), policy::name_of(view.role)),
             false);
    return;
  }
  if (worker->health != WorkerHealth::kUp)
    log(LogLevel::kInfo, "worker.up", "worker={} role={}", worker->name, policy::name_of(view.role));
  worker->health = WorkerHealth::kUp;
  worker->why.clear();
  refresh(*worker, now);
}

void WorkerRegistry::apply_plain(const WorkerPtr& worker, std::vector<std::string> models, TimePoint now) {
  set_models(*worker, models);
  if (worker->health != WorkerHealth::kUp)
    log(LogLevel::kInfo, "worker.up", "worker={} plain=true", worker->name);
  worker->plain = true;
  worker->report.reset();
  worker->health = WorkerHealth::kUp;
  worker->why.clear();
  worker->heard = now;
  // It says nothing of its load: what this gateway gave it is all that is known.
  policy::WorkerView& view = views_[worker->index];
  set_role(*worker, worker->named_role);
  view.kind = 0;
  view.load = policy::WorkerLoad{now, view.in_flight, 0, static_cast<std::int64_t>(view.reserved_tokens), 0};
  view.reserved_since_report = 0;
  view.in_flight_since_report = 0;
  view.pages_since_report = 0;
  ++worker->generation;
  refresh(*worker, now);
}

void WorkerRegistry::set_down(const WorkerPtr& worker, const std::string& why, bool lost) {
  if (worker->health != WorkerHealth::kDown || worker->why != why)
    log(LogLevel::kWarn, "worker.down", "worker={} lost={} why=\"{}\"", worker->name, lost, why);
  worker->health = WorkerHealth::kDown;
  worker->why = why;
  refresh(*worker, now());
  if (lost) tell_lost(*worker, why);
}

void WorkerRegistry::mistrust(const WorkerPtr& worker, const Status& why) {
  if (why.code() == ErrorCode::kUnavailable && worker->health == WorkerHealth::kUp)
    set_down(worker, why.message(), false);
}

void WorkerRegistry::succeeded(const WorkerPtr& worker) {
  const bool was_open = worker->breaker.state(now()) != policy::Breaker::State::kClosed;
  worker->breaker.succeeded();
  if (!was_open) return;
  log(LogLevel::kInfo, "breaker.closed", "worker={}", worker->name);
  refresh(*worker, now());
}

void WorkerRegistry::failed(const WorkerPtr& worker, TimePoint now) {
  ++worker->failures;
  const bool was_closed = worker->breaker.passes(now);
  worker->breaker.failed(now);
  if (!was_closed || worker->breaker.passes(now)) return;
  log(LogLevel::kWarn, "breaker.opened", "worker={}", worker->name);
  refresh(*worker, now);
}

void WorkerRegistry::forgotten(const WorkerPtr& worker) {
  worker->breaker.forgotten();
  refresh(*worker, now());
}

void WorkerRegistry::learn_prefill(const WorkerPtr& worker, double tokens, double seconds) {
  if (tokens < kLeastRateTokens || seconds <= 0) return;
  const double rate = tokens / seconds;
  worker->prefill_rate =
      worker->prefill_rate == 0 ? rate : kRateForget * worker->prefill_rate + (1 - kRateForget) * rate;
  refresh(*worker, now());
}

Reservation WorkerRegistry::reserve(const WorkerPtr& worker, double uncached_tokens, double pages,
                                    TimePoint now) {
  policy::WorkerView& view = views_[worker->index];
  // Whole ones: what is added and taken back in another order must come to nothing.
  uncached_tokens = std::round(uncached_tokens);
  pages = std::round(pages);
  view.reserved_tokens += uncached_tokens;
  view.reserved_since_report += uncached_tokens;
  ++view.in_flight;
  ++view.in_flight_since_report;
  view.pages_since_report += pages;
  ++worker->requests;
  worker->breaker.sent(now);
  if (!worker->breaker.passes(now)) refresh(*worker, now);
  return Reservation(*this, worker, uncached_tokens, pages);
}

void WorkerRegistry::tick(TimePoint now) {
  for (const WorkerPtr& worker : workers_) refresh(*worker, now);
}

void WorkerRegistry::refresh(const Worker& worker, TimePoint now) {
  if (worker.index >= workers_.size() || workers_[worker.index].get() != &worker) return;
  policy::WorkerView& view = views_[worker.index];
  view.available =
      worker.health == WorkerHealth::kUp && !worker.draining && !worker.leaving && worker.breaker.passes(now);
  view.prefill_rate = worker.prefill_rate;
}

void WorkerRegistry::set_models(Worker& worker, const std::vector<std::string>& models) {
  if (worker.models == models) return;
  worker.models = models;
  by_model_stale_ = true;
}

void WorkerRegistry::set_role(const Worker& worker, policy::WorkerRole role) {
  policy::WorkerView& view = views_[worker.index];
  by_model_stale_ = by_model_stale_ || view.role != role;
  view.role = role;
}

const ModelWorkers& WorkerRegistry::serving(const std::string& model) {
  static const ModelWorkers kNobody;
  if (by_model_stale_) {
    by_model_.clear();
    const auto add = [this](ModelWorkers& to, std::uint32_t index) {
      to.all.push_back(index);
      const policy::WorkerRole role = views_[index].role;
      (role == policy::WorkerRole::kPrefill  ? to.prefill
       : role == policy::WorkerRole::kDecode ? to.decode
                                             : to.whole)
          .push_back(index);
    };
    for (const WorkerPtr& worker : workers_) {
      add(by_model_[""], worker->index);
      for (const std::string& name : worker->models) {
        if (!name.empty()) add(by_model_[name], worker->index);
      }
    }
    by_model_stale_ = false;
  }
  const auto it = by_model_.find(model);
  return it == by_model_.end() ? kNobody : it->second;
}

bool WorkerRegistry::answers() const {
  bool prefill = false, decode = false;
  for (const policy::WorkerView& view : views_) {
    if (!view.available) continue;
    if (view.role == policy::WorkerRole::kBoth) return true;
    (view.role == policy::WorkerRole::kPrefill ? prefill : decode) = true;
  }
  return prefill && decode;
}

std::map<std::string, WorkerPtr> WorkerRegistry::models() const {
  std::map<std::string, WorkerPtr> models;
  for (const WorkerPtr& worker : workers_) {
    for (const std::string& name : worker->models) {
      WorkerPtr& shown = models[name];
      if (shown == nullptr || shown->plain) shown = worker;
    }
  }
  return models;
}

}  // namespace shoal::gateway
