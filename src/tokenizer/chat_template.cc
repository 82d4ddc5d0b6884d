#include "tokenizer/chat_template.h"

#include <new>
#include <utility>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_json.h"
#include "tokenizer/jinja_parser.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

// The longest published template has 17 KB.
constexpr std::size_t kMaxSource = std::size_t{1} << 20;

// A message may quote a value of any size.
constexpr std::size_t kMaxMessage = 8192;

void shorten(std::string& message) {
  if (message.size() <= kMaxMessage) return;
  std::size_t end = kMaxMessage;
  while ((static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  message.resize(end);
}

Status check_request(const ChatRequest& request) {
  const auto& kwargs = request.kwargs;
  if (!kwargs.is_null() && !kwargs.is_object()) {
    return Status(ErrorCode::kInvalidArgument, "the arguments of a chat template must be an object");
  }
  for (const char* reserved : {"messages", "tools", "documents"}) {
    if (kwargs.is_object() && kwargs.contains(reserved)) {
      return Status(ErrorCode::kInvalidArgument,
                    std::string("an argument of a chat template may not be named ") + reserved);
    }
  }
  return {};
}

void define_variables(jinja::Interpreter& interpreter, jinja::Heap& heap, const ChatRequest& request,
                      const std::map<std::string, std::string>& tokens) {
  for (const auto& [name, text] : tokens) interpreter.define(name, jinja::make_text(heap, text));
  if (request.kwargs.is_object()) {
    for (const auto& [name, value] : request.kwargs.items()) {
      interpreter.define(name, jinja::from_json(heap, value));
    }
  }
  interpreter.define("messages", jinja::from_json(heap, request.messages));
  interpreter.define("tools", jinja::from_json(heap, request.tools));
  interpreter.define("documents", jinja::None{});
}

}  // namespace

Expected<ChatTemplate> ChatTemplate::parse(std::string source, std::string bos_token, std::string eos_token,
                                           std::map<std::string, std::string> others) {
  if (source.size() > kMaxSource) {
    return Status(ErrorCode::kCorrupt, "the chat template has " + std::to_string(source.size()) +
                                           " bytes, more than " + std::to_string(kMaxSource));
  }
  ChatTemplate result;
  try {
    result.template_ = std::make_shared<const jinja::Template>(jinja::parse_template(to_valid_utf8(source)));
  } catch (const jinja::Failure& failure) {
    return Status(ErrorCode::kCorrupt, "chat template, " + failure.message);
  }
  result.tokens_ = std::move(others);
  if (!bos_token.empty()) result.tokens_["bos_token"] = std::move(bos_token);
  if (!eos_token.empty()) result.tokens_["eos_token"] = std::move(eos_token);
  for (auto& [name, text] : result.tokens_) text = to_valid_utf8(text);
  return result;
}

Expected<std::string> ChatTemplate::render(const ChatRequest& request) const {
  return render(request, jinja::Limits{});
}

Expected<std::string> ChatTemplate::render(const ChatRequest& request, const jinja::Limits& limits) const {
  SHOAL_TRY(check_request(request));
  jinja::Heap heap(limits);
  int line = 1;
  try {
    jinja::Interpreter interpreter(*template_, heap);
    try {
      define_variables(interpreter, heap, request, tokens_);
      return interpreter.render();
    } catch (...) {
      line = interpreter.line();
      throw;
    }
  } catch (jinja::Failure& failure) {
    shorten(failure.message);
    if (failure.raised) return Status(ErrorCode::kInvalidArgument, failure.message);
    return Status(ErrorCode::kInvalidArgument,
                  "chat template, line " + std::to_string(line) + ": " + failure.message);
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::kExhausted, "no memory left to render the chat template");
  }
}

}  // namespace shoal::tokenizer
