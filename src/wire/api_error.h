// Errors as OpenAI's clients expect them: {"error":{"message","type","param","code"}} and the HTTP status.
//
// Thread-safety: pure functions.
// Mapping: kInvalidArgument, kUnsupported 400; kTooLong 400 context_length_exceeded; kNotFound 404
//   model_not_found; kExhausted 429 with Retry-After; kUnavailable 503 with Retry-After; kDeadline 504;
//   kCancelled 499; else 500.

#pragma once

#include <string>
#include <string_view>

#include "core/expected.h"
#include "wire/http_message.h"

namespace shoal::wire {

// param, code: empty becomes null. Broken UTF-8 in any of them is replaced.
std::string error_body(std::string_view message, std::string_view type, std::string_view param = {},
                       std::string_view code = {});

HttpReply error_reply(int status, std::string_view type, std::string_view message, HeaderList headers = {},
                      std::string_view param = {}, std::string_view code = {});

int http_status(ErrorCode code);

// retry_after: seconds, sent with 429 and 503.
HttpReply error_reply(const Status& status, int retry_after = 1);
// The same object for a stream whose head is already out.
std::string error_body(const Status& status);

// 401 invalid_api_key.
HttpReply unauthorized_reply();

// The message in such a body that a server sent, or the start of the body where there is none.
std::string error_message_of(std::string_view body);

}  // namespace shoal::wire
