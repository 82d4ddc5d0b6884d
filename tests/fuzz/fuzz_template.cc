// Feeds any bytes to the template parser, and what it accepts to the interpreter with a fixed conversation.
//
// Beyond crashes it checks the promises of ChatTemplate: valid UTF-8 or an error of its own kind.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tokenizer/chat_template.h"
#include "tokenizer/jinja_heap.h"
#include "tokenizer/utf8.h"

namespace {

using namespace shoal;
using Json = nlohmann::ordered_json;

void require(bool promise) {
  if (!promise) std::abort();
}

tokenizer::ChatRequest conversation() {
  tokenizer::ChatRequest request;
  request.messages = Json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Zwölf 日本 😀?"}]},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "c1", "function": {"name": "add", "arguments": {"a": 1, "b": -2.5, "c": [true, null]}}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "<12>\n  & more"}])");
  request.tools = Json::parse(R"([{"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "number", "enum": [1, 2]}}, "required": ["a"]}}}])");
  request.kwargs = Json::parse(R"({"add_generation_prompt": true, "n": 7, "s": "a,b c"})");
  return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tokenizer::ChatRequest request = conversation();
  // Small: a fuzzer's second is better spent on another input than on one long loop.
  static const tokenizer::jinja::Limits limits{20'000, 4 << 20, 1 << 18, 300};
  const std::string source(reinterpret_cast<const char*>(data), size);
  const auto parsed = tokenizer::ChatTemplate::parse(source, "<s>", "</s>");
  if (!parsed.ok()) {
    require(parsed.error().code() == ErrorCode::kCorrupt && !parsed.error().message().empty());
    return 0;
  }
  const auto rendered = parsed->render(request, limits);
  if (!rendered.ok()) {
    require(rendered.error().code() == ErrorCode::kInvalidArgument);
    return 0;
  }
  require(tokenizer::is_valid_utf8(*rendered));
  return 0;
}
