#include "wire/openai_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace shoal::wire {

namespace {

// A positive double may be 0 as the sampler's float. Below these the outcome no longer changes.
constexpr double kLeastTopP = 1e-6;
constexpr double kLeastRepetitionPenalty = 1e-3;

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

Status read_stop(const JsonFields& body, std::vector<std::string>& out) {
  const auto element = body.find("stop");
  if (!element) return {};
  simdjson::dom::array list;
  const bool single = element->is_string();
  if (!single && element->get_array().get(list) != simdjson::SUCCESS) {
    return field_error("stop", "must be a string or a list of strings");
  }
  const auto add = [&out](JsonElement item, const std::string& path) -> Status {
    SHOAL_ASSIGN(text, json_text(item, path));
    if (text.empty()) return field_error(path, "must not be empty");
    if (text.size() > kMaxStopBytes)
      return field_error(path, fmt::format("is longer than {} bytes", kMaxStopBytes));
    out.push_back(std::move(text));
    return {};
  };
  if (single) return add(*element, "stop");
  for (const JsonElement item : list) {
    if (out.size() == kMaxStopStrings) {
      return field_error("stop", fmt::format("holds more than {} strings", kMaxStopStrings));
    }
    SHOAL_TRY(add(item, fmt::format("stop[{}]", out.size())));
  }
  return {};
}

Status read_logit_bias(const JsonFields& body, std::vector<std::pair<TokenId, float>>& out) {
  const auto element = body.find("logit_bias");
  if (!element) return {};
  simdjson::dom::object object;
  if (element->get_object().get(object) != simdjson::SUCCESS) {
    return field_error("logit_bias", "must be an object of token ids and numbers");
  }
  for (const auto [key, value] : object) {
    if (out.size() == kMaxLogitBias) {
      return field_error("logit_bias", fmt::format("holds more than {} entries", kMaxLogitBias));
    }
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return field_error("logit_bias", "must have token ids as its keys: \"50256\"");
    }
    SHOAL_ASSIGN(bias, json_number(value, fmt::format("logit_bias[{}]", id), {-100, 100}));
    out.emplace_back(id, static_cast<float>(bias));
  }
  return {};
}

Status read_stream(const JsonFields& body, CommonFields& out) {
  SHOAL_TRY(body.boolean("stream", out.stream));
  SHOAL_ASSIGN(options, body.object("stream_options"));
  if (!options) return {};
  if (!out.stream) return field_error("stream_options", "is only allowed with stream: true");
  return options->boolean("include_usage", out.include_usage);
}

Status read_rid(const JsonFields& body, std::string& out) {
  SHOAL_TRY(body.text("rid", out));
  if (out.size() > kMaxRidBytes)
    return field_error("rid", fmt::format("is longer than {} bytes", kMaxRidBytes));
  // It stands in the log, one line an event.
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(out.begin(), out.end(), is_control))
    return field_error("rid", "must not hold control characters");
  return {};
}

Status read_top_k(const JsonFields& body, int& out) {
  SHOAL_TRY(body.integer("top_k", -1, kMaxInt32, out));
  if (out < 0) out = 0;
  return {};
}

Status read_sampling(const JsonFields& body, SamplingFields& out) {
  SHOAL_TRY(body.number("temperature", {0, 2}, out.temperature));
  SHOAL_TRY(body.number("top_p", {0, 1, true}, out.top_p));
  out.top_p = std::max(out.top_p, kLeastTopP);
  SHOAL_TRY(read_top_k(body, out.top_k));
  SHOAL_TRY(body.number("min_p", {0, 1}, out.min_p));
  SHOAL_TRY(body.number("repetition_penalty", {0, 10, true}, out.repetition_penalty));
  out.repetition_penalty = std::max(out.repetition_penalty, kLeastRepetitionPenalty);
  SHOAL_TRY(body.number("frequency_penalty", {-2, 2}, out.frequency_penalty));
  SHOAL_TRY(body.number("presence_penalty", {-2, 2}, out.presence_penalty));
  SHOAL_TRY(read_logit_bias(body, out.logit_bias));
  SHOAL_TRY(body.integer("seed", std::numeric_limits<std::int64_t>::min(),
                         std::numeric_limits<std::int64_t>::max(), out.seed));
  SHOAL_TRY(read_stop(body, out.stop));
  if (const auto ids = body.find("stop_token_ids")) {
    SHOAL_ASSIGN(list, json_token_ids(*ids, "stop_token_ids", kMaxStopTokenIds));
    out.stop_token_ids = std::move(list);
  }
  SHOAL_TRY(body.integer("min_tokens", 0, kMaxInt32, out.min_tokens));
  SHOAL_TRY(body.boolean("ignore_eos", out.ignore_eos));
  SHOAL_TRY(body.boolean("skip_special_tokens", out.skip_special_tokens));
  return body.integer("n", 1, kMaxChoices, out.n);
}

// Present, and not a way of saying "off": false, "", [] and {}.
bool asks_for_something(JsonElement element) {
  switch (element.type()) {
    case simdjson::dom::element_type::BOOL:
      return element.get_bool().value_unsafe();
    case simdjson::dom::element_type::STRING:
      return element.get_string_length().value_unsafe() > 0;
    case simdjson::dom::element_type::ARRAY:
      return element.get_array().value_unsafe().size() > 0;
    case simdjson::dom::element_type::OBJECT:
      return element.get_object().value_unsafe().size() > 0;
    default:
      return true;
  }
}

}  // namespace

std::string clipped(std::string_view text) {
  constexpr std::size_t kMaxBytes = 40;
  if (text.size() <= kMaxBytes) return std::string(text);
  std::size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

Status unbuilt(const std::string& path, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {} is not supported", path, what), path};
}

Status read_common_fields(const JsonFields& body, CommonFields& out) {
  SHOAL_TRY(refuse_unbuilt(body));
  SHOAL_TRY(body.text("model", out.model));
  SHOAL_TRY(read_stream(body, out));
  SHOAL_TRY(body.text("user", out.user));
  SHOAL_TRY(read_rid(body, out.rid));
  SHOAL_TRY(body.text("cache_salt", out.cache_salt));
  SHOAL_TRY(read_bootstrap_fields(body, out.bootstrap));
  return read_sampling(body, out.sampling);
}

Status refuse_unbuilt(const JsonFields& body) {
  SHOAL_ASSIGN(format, body.object("response_format"));
  if (format) {
    std::string type;
    SHOAL_TRY(format->text("type", type));
    if (type != "text") return unbuilt("response_format", fmt::format("the format '{}'", clipped(type)));
  }
  struct Field {
    std::string_view name;
    std::string_view what;
  };
  static constexpr std::array kUnbuilt = {
      Field{"structured_outputs", "constrained output"},
      Field{"guided_json", "constrained output"},
      Field{"guided_regex", "constrained output"},
      Field{"guided_choice", "constrained output"},
      Field{"guided_grammar", "constrained output"},
      Field{"json_schema", "constrained output"},
      Field{"regex", "constrained output"},
      Field{"ebnf", "constrained output"},
      Field{"grammar", "constrained output"},
      Field{"use_beam_search", "beam search"},
      Field{"prompt_logprobs", "prompt_logprobs"},
      Field{"lora_path", "an adapter"},
      Field{"functions", "the old form of tools"},
      Field{"audio", "audio output"},
      Field{"input_ids", "input_ids"},
      Field{"allowed_token_ids", "a list of allowed tokens"},
      Field{"bad_words", "a list of forbidden words"},
      Field{"include_stop_str_in_output", "keeping the stop string"},
      Field{"truncate_prompt_tokens", "cutting the prompt"},
      Field{"chat_template", "a template of the client's own"},
      Field{"logits_processors", "code of the client's own"},
  };
  for (const Field& field : kUnbuilt) {
    const auto element = body.find(field.name);
    if (element && asks_for_something(*element)) return unbuilt(std::string(field.name), field.what);
  }
  return {};
}

Status check_token_limits(const SamplingFields& sampling) {
  if (sampling.max_tokens && sampling.min_tokens > *sampling.max_tokens) {
    return field_error("min_tokens", fmt::format("must not exceed max_tokens, {}", *sampling.max_tokens));
  }
  return {};
}

}  // namespace shoal::wire
