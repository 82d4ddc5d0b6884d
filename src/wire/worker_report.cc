#include "wire/worker_report.h"

#include <algorithm>
#include <array>

#include "wire/json.h"
#include "wire/json_writer.h"

namespace shoal::wire {
namespace {

constexpr std::size_t kMaxModels = 256;
constexpr std::size_t kMaxText = 512;
constexpr std::int64_t kMost = std::int64_t{1} << 53;

template <std::size_t N>
Status one_of(const JsonFields& fields, const char* name, const std::array<std::string_view, N>& known,
              std::string& out) {
  SHOAL_TRY(fields.text(name, out));
  if (std::ranges::find(known, out) != known.end()) return {};
  return field_error(name, "is none of the words it may be");
}

Status short_text(const JsonFields& fields, const char* name, std::string& out) {
  SHOAL_TRY(fields.text(name, out));
  return out.size() <= kMaxText ? Status() : field_error(name, "is too long");
}

Status number(const JsonFields& fields, const char* name, std::int64_t& out) {
  std::optional<std::int64_t> value;
  SHOAL_TRY(fields.integer(name, 0, kMost, value));
  out = value.value_or(out);
  return {};
}

}  // namespace

std::string WorkerReport::to_json() const {
  std::string text;
  JsonWriter out(text);
  out.begin_object().key("protocol").integer(protocol).key("instance").string(instance);
  out.key("role").string(role).key("models").begin_array();
  for (const std::string& model : models) out.string(model);
  out.end_array().key("fingerprint").string(fingerprint).key("context").integer(context);
  out.key("max_sequences").integer(max_sequences).key("pages").integer(pages);
  out.key("created").integer(created).key("resumes").boolean(resumes);
  if (bootstrap_port != 0) out.key("bootstrap_port").integer(bootstrap_port);
  out.key("sequence").integer(sequence).key("epoch").integer(epoch).key("state").string(state);
  out.key("why").string(why).key("running").integer(running).key("waiting").integer(waiting);
  out.key("uncached_tokens").integer(uncached_tokens).key("free_pages").integer(free_pages);
  out.end_object();
  return text;
}

Expected<WorkerReport> WorkerReport::parse(std::string_view json) {
  SHOAL_ASSIGN(document, JsonDocument::parse(json));
  SHOAL_ASSIGN(fields, document.fields());
  WorkerReport report;
  SHOAL_TRY(number(fields, "protocol", report.protocol));
  if (report.protocol != kWorkerProtocol) return field_error("protocol", "is another than this gateway's, 1");
  SHOAL_TRY(short_text(fields, "instance", report.instance));
  if (report.instance.empty()) return field_error("instance", "must not be empty");
  SHOAL_TRY(
      one_of(fields, "role", std::array<std::string_view, 3>{"both", "prefill", "decode"}, report.role));
  if (const auto models = fields.find("models")) {
    simdjson::dom::array list;
    if (models->get_array().get(list) != simdjson::SUCCESS || list.size() > kMaxModels)
      return field_error("models", "must be a list of at most 256 names");
    for (const JsonElement each : list) {
      SHOAL_ASSIGN(name, json_text(each, "models"));
      if (name.empty() || name.size() > kMaxText) return field_error("models", "holds a name that is none");
      report.models.push_back(std::move(name));
    }
  }
  SHOAL_TRY(short_text(fields, "fingerprint", report.fingerprint));
  SHOAL_TRY(number(fields, "context", report.context));
  SHOAL_TRY(number(fields, "max_sequences", report.max_sequences));
  SHOAL_TRY(number(fields, "pages", report.pages));
  SHOAL_TRY(number(fields, "created", report.created));
  SHOAL_TRY(fields.boolean("resumes", report.resumes));
  SHOAL_TRY(number(fields, "bootstrap_port", report.bootstrap_port));
  if (report.bootstrap_port > 65'535) return field_error("bootstrap_port", "is no port");
  SHOAL_TRY(number(fields, "sequence", report.sequence));
  SHOAL_TRY(number(fields, "epoch", report.epoch));
  SHOAL_TRY(one_of(fields, "state", std::array<std::string_view, 4>{"ready", "loading", "draining", "stuck"},
                   report.state));
  SHOAL_TRY(short_text(fields, "why", report.why));
  SHOAL_TRY(number(fields, "running", report.running));
  SHOAL_TRY(number(fields, "waiting", report.waiting));
  SHOAL_TRY(number(fields, "uncached_tokens", report.uncached_tokens));
  SHOAL_TRY(number(fields, "free_pages", report.free_pages));
  return report;
}

}  // namespace shoal::wire
