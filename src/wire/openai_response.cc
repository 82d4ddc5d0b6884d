#include "wire/openai_response.h"

#include "wire/api_error.h"
#include "wire/openai_logprobs.h"

namespace shoal::wire {

namespace {

void write_head(const AnswerId& answer, std::string_view object, JsonWriter& out) {
  out.key("id").string(answer.id).key("object").string(object);
  out.key("created").integer(answer.created).key("model").string(answer.model);
}

std::string stream_prefix(const AnswerId& answer, std::string_view object) {
  std::string text = "data: ";
  JsonWriter out(text);
  out.begin_object();
  write_head(answer, object, out);
  out.key("choices").begin_array();
  return text;
}

std::string stream_suffix(bool include_usage) { return include_usage ? "],\"usage\":null}\n\n" : "]}\n\n"; }

void write_finish(std::optional<FinishReason> reason, std::string_view matched_stop, JsonWriter& out) {
  out.key("finish_reason");
  reason ? out.string(finish_reason_name(*reason)) : out.null();
  if (reason && !matched_stop.empty()) out.key("matched_stop").string(matched_stop);
}

void append_usage_event(const std::string& prefix, const TokenUsage& usage, std::string& out) {
  out += prefix;
  out += "],\"usage\":";
  JsonWriter writer(out);
  write_usage(usage, writer);
  out += "}\n\n";
}

void write_card(const ModelCard& card, JsonWriter& out) {
  out.begin_object().key("id").string(card.id).key("object").string("model");
  out.key("created").integer(card.created).key("owned_by").string("shoal");
  out.key("root").string(card.root).key("parent").null();
  out.key("max_model_len").integer(card.max_model_len).end_object();
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kAbort:
      return "abort";
  }
  return "stop";
}

std::string chat_completion(const AnswerId& answer, const std::vector<FinishedChoice>& choices,
                            const TokenUsage& usage) {
  std::string text;
  JsonWriter out(text);
  out.begin_object();
  write_head(answer, "chat.completion", out);
  out.key("choices").begin_array();
  int index = 0;
  for (const FinishedChoice& choice : choices) {
    out.begin_object().key("index").integer(index++).key("message").begin_object();
    out.key("role").string("assistant").key("content").string(choice.text).key("refusal").null().end_object();
    out.key("logprobs");
    choice.has_logprobs ? write_chat_logprobs(choice.logprobs, out) : void(out.null());
    write_finish(choice.reason, choice.matched_stop, out);
    out.end_object();
  }
  out.end_array().key("usage");
  write_usage(usage, out);
  out.end_object();
  return text;
}

std::string text_completion(const AnswerId& answer, const std::vector<FinishedChoice>& choices,
                            const TokenUsage& usage) {
  std::string text;
  JsonWriter out(text);
  out.begin_object();
  write_head(answer, "text_completion", out);
  out.key("choices").begin_array();
  int index = 0;
  for (const FinishedChoice& choice : choices) {
    int offset = 0;
    out.begin_object().key("index").integer(index++).key("text").string(choice.text).key("logprobs");
    choice.has_logprobs ? write_completion_logprobs(choice.logprobs, offset, out) : void(out.null());
    write_finish(choice.reason, choice.matched_stop, out);
    out.end_object();
  }
  out.end_array().key("usage");
  write_usage(usage, out);
  out.end_object();
  return text;
}

ChatStream::ChatStream(const AnswerId& answer, bool include_usage)
    : prefix_(stream_prefix(answer, "chat.completion.chunk")),
      suffix_(stream_suffix(include_usage)),
      include_usage_(include_usage) {}

void ChatStream::role(int choice, std::string& out) const {
  out += prefix_;
  JsonWriter writer(out);
  writer.begin_object().key("index").integer(choice).key("delta").begin_object();
  writer.key("role").string("assistant").key("content").string("").end_object();
  writer.key("logprobs").null();
  write_finish(std::nullopt, {}, writer);
  writer.end_object();
  out += suffix_;
}

void ChatStream::content(int choice, std::string_view text, const std::vector<TokenLogprobs>* logprobs,
                         std::string& out) const {
  out += prefix_;
  JsonWriter writer(out);
  writer.begin_object().key("index").integer(choice).key("delta").begin_object();
  writer.key("content").string(text).end_object().key("logprobs");
  logprobs != nullptr ? write_chat_logprobs(*logprobs, writer) : void(writer.null());
  write_finish(std::nullopt, {}, writer);
  writer.end_object();
  out += suffix_;
}

void ChatStream::finish(int choice, FinishReason reason, std::string_view matched_stop,
                        std::string& out) const {
  out += prefix_;
  JsonWriter writer(out);
  writer.begin_object().key("index").integer(choice).key("delta").begin_object().end_object();
  writer.key("logprobs").null();
  write_finish(reason, matched_stop, writer);
  writer.end_object();
  out += suffix_;
}

void ChatStream::usage(const TokenUsage& usage, std::string& out) const {
  if (include_usage_) append_usage_event(prefix_, usage, out);
}

CompletionStream::CompletionStream(const AnswerId& answer, bool include_usage)
    : prefix_(stream_prefix(answer, "text_completion")),
      suffix_(stream_suffix(include_usage)),
      include_usage_(include_usage) {}

void CompletionStream::text(int choice, std::string_view text, const std::vector<TokenLogprobs>* logprobs,
                            int& offset, std::string& out) const {
  out += prefix_;
  JsonWriter writer(out);
  writer.begin_object().key("index").integer(choice).key("text").string(text).key("logprobs");
  logprobs != nullptr ? write_completion_logprobs(*logprobs, offset, writer) : void(writer.null());
  write_finish(std::nullopt, {}, writer);
  writer.end_object();
  out += suffix_;
}

void CompletionStream::finish(int choice, FinishReason reason, std::string_view matched_stop,
                              std::string& out) const {
  out += prefix_;
  JsonWriter writer(out);
  writer.begin_object().key("index").integer(choice).key("text").string("").key("logprobs").null();
  write_finish(reason, matched_stop, writer);
  writer.end_object();
  out += suffix_;
}

void CompletionStream::usage(const TokenUsage& usage, std::string& out) const {
  if (include_usage_) append_usage_event(prefix_, usage, out);
}

void append_sse_event(std::string_view json, std::string& out) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

void append_sse_error(const Status& status, std::string& out) {
  append_sse_event(error_body(status), out);
  out += kSseDone;
}

std::string model_card(const ModelCard& card) {
  std::string text;
  JsonWriter out(text);
  write_card(card, out);
  return text;
}

std::string model_list(const std::vector<ModelCard>& cards) {
  std::string text;
  JsonWriter out(text);
  out.begin_object().key("object").string("list").key("data").begin_array();
  for (const ModelCard& card : cards) write_card(card, out);
  out.end_array().end_object();
  return text;
}

}  // namespace shoal::wire
