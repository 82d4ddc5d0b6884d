// Errors as values: what a function that a peer, a file or a user can make fail returns.
//
// Thread-safety: values; as safe as any value.
// Ownership: owns its message or its result.
// Invariants: a failed Status has one sentence that names the thing and the cause, fit to be shown to a
//   user as it is; an Expected holds either a T or a failed Status, never both, never an ok Status.

#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace shoal {

enum class ErrorCode {
  kOk,
  kInvalidArgument,  // the caller's input is wrong: a client's request, a flag
  kNotFound,
  kCorrupt,      // bytes from outside that contradict themselves or their format
  kUnsupported,  // well-formed, but nothing here can do it
  kTooLong,      // a prompt that does not fit the context
  kExhausted,    // a bounded resource is full: pages, queue
  kUnavailable,  // not now: draining, loading, peer gone
  kDeadline,
  kCancelled,
  kIo,
  kInternal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message, std::string field = {})
      : code_(code), message_(std::move(message)), field_(std::move(field)) {}

  bool ok() const { return code_ == ErrorCode::kOk; }
  explicit operator bool() const { return ok(); }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The request field or flag at fault, empty where there is none: OpenAI's error.param.
  const std::string& field() const { return field_; }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
  std::string field_;
};

template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Expected(Status error) : state_(std::in_place_index<1>, std::move(error)) {
    assert(!std::get<1>(state_).ok());
  }
  Expected(ErrorCode code, std::string message) : Expected(Status(code, std::move(message))) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  // ok() when a value is held.
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  const Status& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Status> state_;
};

// Returns the failed status from the enclosing function: `SHOAL_TRY(write_header(out));`
#define SHOAL_TRY(expression)                                                                    \
  do {                                                                                           \
    if (::shoal::Status shoal_status_ = (expression); !shoal_status_.ok()) return shoal_status_; \
  } while (false)

// Declares `name` from an Expected, or returns its error: `SHOAL_ASSIGN(file, MappedFile::open(path));`
#define SHOAL_ASSIGN(name, expression)                         \
  auto name##_expected_ = (expression);                        \
  if (!name##_expected_.ok()) return name##_expected_.error(); \
  auto& name = *name##_expected_

}  // namespace shoal
