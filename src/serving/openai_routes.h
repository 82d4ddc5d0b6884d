// /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize: what clients of OpenAI's API and
// of vLLM's call.
//
// Thread-safety: handlers run on I/O threads; parsing, rendering and encoding run on the worker's text
//   thread.
// Ownership: functions; what outlives them is a GenerationSession.

#pragma once

#include "serving/worker.h"
#include "wire/http_message.h"
#include "wire/response_writer.h"

namespace shoal::serving {

void handle_chat_completion(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response);
void handle_completion(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response);
void handle_models(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response);
// One model by name: /v1/models/NAME.
void handle_model(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response);
// {"prompt": text, "add_special_tokens": true} or {"messages": [...]} -> {"tokens", "count",
// "max_model_len"}.
void handle_tokenize(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response);
// {"tokens": [...]} -> {"text"}, special tokens included.
void handle_detokenize(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response);

}  // namespace shoal::serving
