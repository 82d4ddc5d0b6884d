#include "wire/openai_logprobs.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace shoal::wire {

namespace {

// JSON has no infinity; clients of other engines know -9999 for "cannot occur".
constexpr double kLeastLogprob = -9999.0;

double sayable(double logprob) {
  return std::isfinite(logprob) ? std::max(logprob, kLeastLogprob) : kLeastLogprob;
}

void write_token(std::string_view bytes, double logprob, JsonWriter& out) {
  out.key("token").string(bytes).key("logprob").number(sayable(logprob)).key("bytes").begin_array();
  for (const char byte : bytes) out.integer(static_cast<unsigned char>(byte));
  out.end_array();
}

// A token that is part of a character has no text of its own; this is how OpenAI's older format names its
// bytes.
std::string legible(std::string_view bytes) {
  if (simdjson::validate_utf8(bytes.data(), bytes.size())) return std::string(bytes);
  std::string text = "bytes:";
  for (const char byte : bytes) {
    fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

void write_top_by_name(const TokenLogprobs& token, JsonWriter& out) {
  if (!token.logprob) {
    out.null();
    return;
  }
  // The chosen token is always there, also where it is not among the best; a name appears once, since two
  // tokens that are parts of characters may read the same.
  out.begin_object();
  std::vector<std::string_view> seen;
  const auto add = [&](std::string_view bytes, double logprob) {
    if (std::find(seen.begin(), seen.end(), bytes) != seen.end()) return;
    seen.push_back(bytes);
    out.key_escaped(legible(bytes)).number(sayable(logprob));
  };
  for (const AlternativeToken& alternative : token.top) add(alternative.bytes, alternative.logprob);
  add(token.bytes, *token.logprob);
  out.end_object();
}

}  // namespace

int count_characters(std::string_view bytes) {
  return static_cast<int>(std::count_if(
      bytes.begin(), bytes.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

void write_chat_logprobs(const std::vector<TokenLogprobs>& tokens, JsonWriter& out) {
  out.begin_object().key("content").begin_array();
  for (const TokenLogprobs& token : tokens) {
    out.begin_object();
    write_token(token.bytes, token.logprob.value_or(0), out);
    out.key("top_logprobs").begin_array();
    for (const AlternativeToken& alternative : token.top) {
      out.begin_object();
      write_token(alternative.bytes, alternative.logprob, out);
      out.end_object();
    }
    out.end_array().end_object();
  }
  out.end_array().key("refusal").null().end_object();
}

void write_completion_logprobs(const std::vector<TokenLogprobs>& tokens, int& offset, JsonWriter& out) {
  out.begin_object().key("tokens").begin_array();
  for (const TokenLogprobs& token : tokens) out.string(legible(token.bytes));
  out.end_array().key("token_logprobs").begin_array();
  for (const TokenLogprobs& token : tokens) token.logprob ? out.number(sayable(*token.logprob)) : out.null();
  const bool any_top = std::any_of(tokens.begin(), tokens.end(),
                                   [](const TokenLogprobs& token) { return !token.top.empty(); });
  out.end_array().key("top_logprobs");
  if (any_top) {
    out.begin_array();
    for (const TokenLogprobs& token : tokens) write_top_by_name(token, out);
    out.end_array();
  } else {
    out.null();
  }
  out.key("text_offset").begin_array();
  for (const TokenLogprobs& token : tokens) {
    out.integer(offset);
    offset += token.shown_characters.value_or(count_characters(token.bytes));
  }
  out.end_array().end_object();
}

void write_usage(const TokenUsage& usage, JsonWriter& out) {
  out.begin_object().key("prompt_tokens").integer(usage.prompt_tokens);
  out.key("completion_tokens").integer(usage.completion_tokens);
  out.key("total_tokens").integer(std::int64_t{usage.prompt_tokens} + usage.completion_tokens);
  out.key("prompt_tokens_details")
      .begin_object()
      .key("cached_tokens")
      .integer(usage.cached_tokens)
      .end_object();
  out.end_object();
}

}  // namespace shoal::wire
