// Feeds any bytes to the parsers of request bodies, and what they accept to everything that writes it again.
//
// Beyond crashes it checks the parsers' promises: numbers inside their ranges, lists inside their bounds,
// errors that can be shown to the client, and JSON for templates that is JSON.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/json_writer.h"
#include "wire/openai_request.h"
#include "wire/sse_reader.h"

namespace {

using namespace shoal;

void require(bool promise) {
  if (!promise) std::abort();
}

bool is_json(std::string_view text) {
  // Verbatim parts may nest as deep as a body may, inside the list that holds them.
  simdjson::dom::parser parser;
  if (parser.allocate(text.size() + 1, 4 * wire::kMaxJsonDepth) != simdjson::SUCCESS) return false;
  return parser.parse(text.data(), text.size(), true).error() == simdjson::SUCCESS;
}

void check_error(const Status& status) {
  require(status.code() == ErrorCode::kInvalidArgument);
  require(!status.message().empty());
  require(is_json(wire::error_body(status)));
}

void check_common(const wire::CommonFields& common) {
  const wire::SamplingFields& s = common.sampling;
  require(s.temperature >= 0 && s.temperature <= 2);
  require(static_cast<float>(s.top_p) > 0 && s.top_p <= 1);
  require(s.top_k >= 0);
  require(s.min_p >= 0 && s.min_p <= 1);
  require(static_cast<float>(s.repetition_penalty) > 0 && s.repetition_penalty <= 10);
  require(std::abs(s.frequency_penalty) <= 2 && std::abs(s.presence_penalty) <= 2);
  require(s.n >= 1 && s.n <= wire::kMaxChoices);
  require(s.top_logprobs >= 0 && s.top_logprobs <= wire::kMaxTopLogprobs);
  require(s.logprobs || s.top_logprobs == 0);
  require(s.stop.size() <= wire::kMaxStopStrings && s.stop_token_ids.size() <= wire::kMaxStopTokenIds);
  for (const std::string& stop : s.stop) require(!stop.empty() && stop.size() <= wire::kMaxStopBytes);
  require(s.logit_bias.size() <= wire::kMaxLogitBias);
  for (const auto& [id, bias] : s.logit_bias) require(id >= 0 && std::abs(bias) <= 100);
  require(!s.max_tokens || (*s.max_tokens >= 0 && s.min_tokens <= *s.max_tokens));
  require(common.stream || !common.include_usage);
}

void check_chat(std::string_view body) {
  const auto request = wire::parse_chat_request(body);
  if (!request.ok()) return check_error(request.error());
  check_common(request->common);
  require(!request->messages.empty());
  require(is_json(wire::messages_json(request->messages)));
  require(request->tools_json.empty() || is_json(request->tools_json));
  require(request->template_kwargs_json.empty() || is_json(request->template_kwargs_json));
  require(!(request->continue_final_message && request->add_generation_prompt));
}

void check_completion(std::string_view body) {
  const auto request = wire::parse_completion_request(body);
  if (!request.ok()) return check_error(request.error());
  check_common(request->common);
  require(!request->prompts.empty() && request->prompts.size() <= wire::kMaxPrompts);
  require(request->common.sampling.max_tokens.has_value());
  for (const wire::Prompt& prompt : request->prompts) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
      require(!ids->empty());
      for (const TokenId id : *ids) require(id >= 0);
    }
  }
}

// What comes back from servers and goes out as text is no more to be trusted.
void check_text(std::string_view bytes) {
  std::string json;
  wire::append_json_string(json, bytes);
  require(is_json(json));
  wire::SseReader reader([](std::string_view) {});
  (void)reader.push(bytes);
  (void)wire::error_message_of(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  check_chat(body);
  check_completion(body);
  check_text(body);
  return 0;
}
