#include "wire/api_error.h"

#include <nlohmann/json.hpp>

#include "wire/json.h"

namespace shoal::wire {

namespace {

struct ErrorKind {
  std::string_view type;
  std::string_view code;
};

ErrorKind kind_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return {"invalid_request_error", {}};
    case ErrorCode::kUnsupported:
      return {"invalid_request_error", "unsupported"};
    case ErrorCode::kTooLong:
      return {"invalid_request_error", "context_length_exceeded"};
    case ErrorCode::kNotFound:
      return {"invalid_request_error", "model_not_found"};
    case ErrorCode::kExhausted:
      return {"rate_limit_error", "rate_limit_exceeded"};
    case ErrorCode::kUnavailable:
      return {"unavailable_error", "unavailable"};
    case ErrorCode::kDeadline:
      return {"timeout_error", "timeout"};
    case ErrorCode::kCancelled:
      return {"cancelled_error", "cancelled"};
    default:
      return {"internal_error", {}};
  }
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return 200;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kTooLong:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kExhausted:
      return 429;
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kDeadline:
      return 504;
    case ErrorCode::kCancelled:
      return 499;
    default:
      return 500;
  }
}

std::string error_body(std::string_view message, std::string_view type, std::string_view param,
                       std::string_view code) {
  nlohmann::ordered_json error;
  error["message"] = message;
  error["type"] = type;
  error["param"] = param.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(param);
  error["code"] = code.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(code);
  nlohmann::ordered_json body;
  body["error"] = std::move(error);
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpReply error_reply(int status, std::string_view type, std::string_view message, HeaderList headers,
                      std::string_view param, std::string_view code) {
  return {status, "application/json", error_body(message, type, param, code), std::move(headers)};
}

std::string error_body(const Status& status) {
  const ErrorKind kind = kind_of(status.code());
  return error_body(status.message(), kind.type, status.field(), kind.code);
}

HttpReply error_reply(const Status& status, int retry_after) {
  HttpReply reply{http_status(status.code()), "application/json", error_body(status), {}};
  if (reply.status == 429 || reply.status == 503) {
    reply.headers.emplace_back("Retry-After", std::to_string(retry_after));
  }
  return reply;
}

HttpReply unauthorized_reply() {
  return error_reply(401, "authentication_error",
                     "the API key is missing or wrong: send Authorization: Bearer KEY",
                     {{"WWW-Authenticate", "Bearer"}}, {}, "invalid_api_key");
}

std::string error_message_of(std::string_view body) {
  const auto document = JsonDocument::parse(body);
  if (document.ok()) {
    std::string_view message;
    if (document->root()["error"]["message"].get_string().get(message) == simdjson::SUCCESS)
      return std::string(message);
  }
  return std::string(body.substr(0, 200));
}

}  // namespace shoal::wire
