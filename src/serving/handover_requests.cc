#include "serving/handover_requests.h"

#include <fmt/format.h>

#include "wire/json.h"

namespace shoal::serving {

Status add_legs(Worker& worker, const wire::CommonFields& fields, std::vector<SessionPrompt>& prompts) {
  const std::vector<wire::BootstrapEntry>& entries = fields.bootstrap;
  if (entries.empty()) return {};
  if (worker.sender == nullptr && worker.receiver == nullptr)
    return wire::field_error("bootstrap_room",
                             "cannot be served: this worker was started without --role prefill or decode");
  const auto n = static_cast<std::size_t>(fields.sampling.n);
  if (entries.size() != prompts.size() * n)
    return wire::field_error("bootstrap_room",
                             fmt::format("must have {} entries, one for each answer", prompts.size() * n));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    engine::GenerateRequest& request = prompts[i].request;
    if (!request.resume.empty())
      return wire::field_error("shoal_resume", "cannot be served with bootstrap_room");
    if (request.prompt_logprobs >= 0)
      return wire::field_error("echo", "with logprobs cannot be served by two workers");
    if (request.max_tokens < 1)
      return wire::field_error("max_tokens", "must be at least 1 with bootstrap_room");
    for (std::size_t choice = 0; choice < n; ++choice) {
      const wire::BootstrapEntry& entry = entries[i * n + choice];
      if (worker.sender != nullptr) {
        SHOAL_ASSIGN(leg, worker.sender->depart(entry.room, request.prompt));
        request.departures.push_back(std::move(leg));
      } else {
        if (entry.host.empty())
          return wire::field_error("bootstrap_host", "must name the prefill worker on a decode worker");
        SHOAL_ASSIGN(leg, worker.receiver->arrive(entry.room, {entry.host, entry.port}));
        request.arrivals.push_back(std::move(leg));
      }
    }
  }
  return {};
}

Expected<std::size_t> abandon_rooms(Worker& worker, const wire::JsonFields& fields) {
  std::vector<wire::BootstrapEntry> entries;
  SHOAL_TRY(wire::read_bootstrap_fields(fields, entries));
  if (!entries.empty() && worker.sender == nullptr && worker.receiver == nullptr)
    return wire::field_error("bootstrap_room",
                             "is unknown here: this worker was started without --role prefill or decode");
  for (const wire::BootstrapEntry& entry : entries) {
    if (worker.sender != nullptr) worker.sender->abandon(entry.room);
    if (worker.receiver != nullptr) worker.receiver->abandon(entry.room);
  }
  return entries.size();
}

}  // namespace shoal::serving
