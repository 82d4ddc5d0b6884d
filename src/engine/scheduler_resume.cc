// How the scheduler takes up choices that another worker has begun: ids are appended, never tokenised anew,
// and run through detokeniser and stop matcher as if they had been sampled here.

#include <fmt/format.h>

#include <algorithm>

#include "engine/scheduler.h"

namespace shoal::engine {
namespace {

Status wrong(std::string sentence) {
  return {ErrorCode::kInvalidArgument, std::move(sentence), "shoal_resume"};
}

}  // namespace

Status validate_resume(const GenerateRequest& request, std::int64_t vocabulary, std::int32_t context) {
  if (request.resume.empty()) return {};
  if (std::ssize(request.resume) != request.n)
    return wrong(
        fmt::format("shoal_resume has {} choices, the request {}", request.resume.size(), request.n));
  if (std::ranges::all_of(request.resume, &ResumedChoice::finished))
    return wrong("shoal_resume leaves nothing to be done");
  // With the first event of the choice that computes the prompt they have gone out, or they never will.
  if (request.prompt_logprobs >= 0)
    return {ErrorCode::kUnsupported,
            "an answer that echoes log-probabilities of its prompt cannot be gone on with", "shoal_resume"};
  for (const ResumedChoice& choice : request.resume) {
    const auto known = [&](TokenId id) { return id >= 0 && id < vocabulary; };
    if (!std::ranges::all_of(choice.output, known)) return wrong("shoal_resume has a token that is none");
    const std::size_t length = request.prompt.size() + choice.output.size();
    if (length > static_cast<std::size_t>(context) || std::ssize(choice.output) > request.max_tokens)
      return wrong("shoal_resume has more tokens than the answer may");
    if (choice.emitted_bytes < 0) return wrong("emitted_bytes must be at least 0");
  }
  return {};
}

// Its sequences are queued. All come at once: whoever waits for the first choice to compute the prompt would
// wait for ever where that one has ended.
void Scheduler::resume(RequestRecord& request, TimePoint now) {
  const RequestId id = request.id;
  const std::vector<ResumedChoice> from = request.request.resume;
  // A copy: the record goes with its last choice.
  const std::vector<Sequence*> choices = request.choices;
  request.prompt_done = request.prompt_done || from.front().finished;
  for (std::size_t i = 0; i < from.size(); ++i) {
    request.usage.completion_tokens += static_cast<std::int32_t>(from[i].output.size());
    if (from[i].finished) --request.open_choices;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (choices[i] == nullptr) continue;
    OutputEvent event;
    event.choice = static_cast<std::int32_t>(i);
    if (const Status status = replay(*choices[i], from[i], event); !status.ok()) {
      ++totals_.requests_failed;
      end_request(*requests_.at(id.value), FinishReason::kError, status, now);
      return;
    }
    if (event.finish) end_choice(*choices[i], std::move(event), now);
  }
}

// Fills event where the choice has ended with what it had put out.
Status Scheduler::replay(Sequence& sequence, const ResumedChoice& from, OutputEvent& event) {
  std::string text;
  for (const TokenId id : from.output) {
    if (event.finish) return wrong("shoal_resume goes on after the answer's end");
    take_token(sequence, id, event);
  }
  text.swap(event.text);
  if (from.emitted_bytes > std::ssize(text))
    return wrong(fmt::format("shoal_resume says that {} bytes have been sent; its tokens make {}",
                             from.emitted_bytes, text.size()));
  text.erase(0, static_cast<std::size_t>(from.emitted_bytes));
  (event.finish ? event.text : sequence.resumed_text) = std::move(text);
  sequence.resumed = sequence.output_tokens();
  return {};
}

}  // namespace shoal::engine
