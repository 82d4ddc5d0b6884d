// A model's chat template: turns a conversation into the text the model was trained on.
//
// Thread-safety: a ChatTemplate never changes after parse; any thread may render.
// Ownership: keeps its own copy of everything.
// Invariants:
//   1. Renderings equal those of Jinja2 with trim_blocks, lstrip_blocks, break and continue, a tojson that
//      escapes no HTML, raise_exception and strftime_now, byte for byte.
//   2. Any template and any conversation end: with a text or one sentence, within the limits of jinja_heap.h.

#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/expected.h"

namespace shoal::tokenizer {

namespace jinja {
struct Template;
struct Limits;
}  // namespace jinja

struct ChatRequest {
  nlohmann::ordered_json messages;  // array of messages, as the API takes them
  nlohmann::ordered_json tools;     // array, or null where there are none
  // Object or null: add_generation_prompt, enable_thinking and whatever else the template knows.
  nlohmann::ordered_json kwargs;
};

class ChatTemplate {
 public:
  // The tokens are variables of the template; an empty one stays undefined. others: by variable name, e.g.
  // pad_token. Fails with kCorrupt and the line where the source is no template.
  static Expected<ChatTemplate> parse(std::string source, std::string bos_token, std::string eos_token,
                                      std::map<std::string, std::string> others = {});

  // Fails with kInvalidArgument: with the template's own sentence where it calls raise_exception, with the
  // line and the cause where the template cannot take this conversation or exceeds a limit.
  Expected<std::string> render(const ChatRequest& request) const;
  Expected<std::string> render(const ChatRequest& request, const jinja::Limits& limits) const;

 private:
  ChatTemplate() = default;

  std::shared_ptr<const jinja::Template> template_;
  std::map<std::string, std::string> tokens_;
};

}  // namespace shoal::tokenizer
