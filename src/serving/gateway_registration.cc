#include "serving/gateway_registration.h"

#include <fmt/format.h>

#include <utility>

#include "core/log.h"
#include "wire/api_error.h"
#include "wire/json_writer.h"

namespace shoal::serving {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};

std::string with_url(const std::string& report, const std::string& url) {
  std::string body = "{\"url\":";
  wire::append_json_string(body, url);
  body.push_back(',');
  return body + report.substr(1);
}

}  // namespace

struct GatewayRegistration::Gateway {
  wire::Url url;
  bool under_way = false;
  std::shared_ptr<wire::HttpExchange> call;  // the one that is
  std::string complaint;                     // as logged last
};

GatewayRegistration::GatewayRegistration(wire::EventLoop& loop, wire::HttpClient& client,
                                         RegistrationOptions options,
                                         std::function<wire::WorkerReport()> report)
    : client_(client), options_(std::move(options)), report_(std::move(report)), timer_(loop) {
  for (const wire::Url& url : options_.gateways) {
    gateways_.push_back(std::make_shared<Gateway>());
    gateways_.back()->url = url;
    gateways_.back()->url.path = "/workers";
  }
}

GatewayRegistration::~GatewayRegistration() {
  // A call's callbacks hold its gateway.
  for (const auto& gateway : gateways_) gateway->call = nullptr;
}

void GatewayRegistration::start() {
  timer_.start(options_.offset, [this] { turn(); });
}

void GatewayRegistration::turn() {
  tell();
  timer_.start(options_.interval, [this] { turn(); });
}

void GatewayRegistration::stop() {
  timer_.cancel();
  for (const auto& gateway : gateways_) {
    if (gateway->call != nullptr) std::exchange(gateway->call, nullptr)->cancel();
    gateway->under_way = false;
  }
}

std::vector<wire::HttpCall> GatewayRegistration::calls() const {
  const std::string body = with_url(report_().to_json(), options_.url);
  std::vector<wire::HttpCall> calls;
  for (const auto& gateway : gateways_) {
    wire::HttpCall& call = calls.emplace_back();
    call.url = gateway->url;
    call.method = "POST";
    call.headers = {{"Content-Type", "application/json"}, {"Authorization", "Bearer " + options_.key}};
    call.body = body;
    call.connect_timeout = call.idle_timeout = call.deadline = kPatience;
  }
  return calls;
}

void GatewayRegistration::tell() {
  std::vector<wire::HttpCall> all = calls();
  for (std::size_t i = 0; i < gateways_.size(); ++i) {
    if (!gateways_[i]->under_way) tell(gateways_[i], client_, std::move(all[i]));
  }
}

void GatewayRegistration::tell(const std::shared_ptr<Gateway>& gateway, wire::HttpClient& client,
                               wire::HttpCall call) {
  gateway->under_way = true;
  struct Answer {
    int status = 0;
    std::string body;
  };
  const auto answer = std::make_shared<Answer>();
  gateway->call = client.start(
      std::move(call),
      {[answer](int status, const wire::HeaderList&) { answer->status = status; },
       [answer](std::string_view bytes) {
         if (answer->body.size() < 4096) answer->body += bytes;
         return true;
       },
       [answer, gateway](const Status& status) {
         gateway->under_way = false;
         gateway->call = nullptr;
         std::string complaint;
         if (!status.ok()) {
           complaint = status.message();
         } else if (answer->status != 200) {
           complaint = fmt::format("{} {}", answer->status, wire::error_message_of(answer->body));
         }
         if (complaint == gateway->complaint) return;
         if (complaint.empty()) {
           log(LogLevel::kInfo, "gateway.registered", "gateway={}", gateway->url.authority());
         } else {
           log(LogLevel::kWarn, "gateway.not_registered", "gateway={} why=\"{}\"", gateway->url.authority(),
               complaint);
         }
         gateway->complaint = complaint;
       }});
}

RegisteredWorker::RegisteredWorker(RegistrationOptions options, std::function<wire::WorkerReport()> report)
    : client_(wire::HttpClientOptions{.tls = nullptr, .loop = &loop_, .max_idle = 1}),
      registration_(loop_, client_, std::move(options), std::move(report)) {
  loop_.post([this] { registration_.start(); });
}

RegisteredWorker::~RegisteredWorker() {
  std::vector<wire::HttpCall> farewell;
  loop_.call([&] {
    registration_.stop();
    farewell = registration_.calls();
  });
  // A gateway that does not hear it notices by the lease.
  for (wire::HttpCall& call : farewell) (void)client_.send(std::move(call), 4096);
  loop_.stop();
}

}  // namespace shoal::serving
