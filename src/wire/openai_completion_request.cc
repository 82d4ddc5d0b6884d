#include <fmt/format.h>

#include "wire/openai_fields.h"
#include "wire/openai_request.h"

namespace shoal::wire {

namespace {

// Longer prompts than any context; bounds what a list of ids may take before the context's own limit is
// applied.
constexpr std::size_t kMaxPromptIds = 16 * 1024 * 1024;

Expected<std::vector<TokenId>> read_ids(JsonElement element, const std::string& path) {
  SHOAL_ASSIGN(ids, json_token_ids(element, path, kMaxPromptIds));
  if (ids.empty()) return field_error(path, "must hold at least one token id");
  return std::move(ids);
}

Status read_prompts(const JsonFields& body, std::vector<Prompt>& out) {
  const auto element = body.find("prompt");
  if (!element) return field_error("prompt", "is missing");
  if (element->is_string()) {
    SHOAL_ASSIGN(text, json_text(*element, "prompt"));
    out.emplace_back(std::move(text));
    return {};
  }
  simdjson::dom::array list;
  constexpr std::string_view kForms =
      "must be a string, a list of strings, a list of token ids or a list of such lists";
  if (element->get_array().get(list) != simdjson::SUCCESS) return field_error("prompt", kForms);
  if (list.size() == 0) return field_error("prompt", "must not be empty");
  if (list.at(0).is_number()) {
    SHOAL_ASSIGN(ids, read_ids(*element, "prompt"));
    out.emplace_back(std::move(ids));
    return {};
  }
  for (const JsonElement item : list) {
    if (out.size() == kMaxPrompts)
      return field_error("prompt", fmt::format("holds more than {} prompts", kMaxPrompts));
    const std::string path = fmt::format("prompt[{}]", out.size());
    if (item.is_string()) {
      SHOAL_ASSIGN(text, json_text(item, path));
      out.emplace_back(std::move(text));
    } else if (item.is_array()) {
      SHOAL_ASSIGN(ids, read_ids(item, path));
      out.emplace_back(std::move(ids));
    } else {
      return field_error(path, "must be a string or a list of token ids");
    }
  }
  return {};
}

Status refuse_unbuilt_completion(const JsonFields& body) {
  if (body.has("suffix")) return unbuilt("suffix", "text after the completion");
  int best_of = 1;
  SHOAL_TRY(body.integer("best_of", 1, kMaxChoices, best_of));
  if (best_of > 1) return unbuilt("best_of", "choosing among more completions than are returned");
  if (body.has("best_of")) {
    int n = 1;
    SHOAL_TRY(body.integer("n", 1, kMaxChoices, n));
    if (n > best_of) return field_error("best_of", fmt::format("must be at least n, {}", n));
  }
  return {};
}

Status read_logprobs(const JsonFields& body, SamplingFields& out) {
  std::optional<int> count;
  SHOAL_TRY(body.integer("logprobs", 0, kMaxTopLogprobs, count));
  out.logprobs = count.has_value();
  out.top_logprobs = count.value_or(0);
  return {};
}

}  // namespace

Expected<CompletionRequest> parse_completion_request(std::string_view body, const SamplingFields& defaults) {
  SHOAL_ASSIGN(document, JsonDocument::parse(body));
  SHOAL_ASSIGN(fields, document.fields());
  CompletionRequest request;
  request.common.sampling = defaults;
  SHOAL_TRY(read_prompts(fields, request.prompts));
  SHOAL_TRY(refuse_unbuilt_completion(fields));
  SHOAL_TRY(read_common_fields(fields, request.common));
  SHOAL_TRY(fields.boolean("echo", request.echo));
  SamplingFields& sampling = request.common.sampling;
  SHOAL_TRY(read_logprobs(fields, sampling));
  sampling.max_tokens = kDefaultCompletionTokens;
  SHOAL_TRY(fields.integer("max_tokens", request.echo ? 0 : 1, std::numeric_limits<std::int32_t>::max(),
                           sampling.max_tokens));
  SHOAL_TRY(check_token_limits(sampling));
  return request;
}

}  // namespace shoal::wire
