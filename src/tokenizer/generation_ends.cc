#include "tokenizer/generation_ends.h"

namespace shoal::tokenizer {
namespace {

constexpr std::string_view kNames[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "[e~[",
};

}  // namespace

std::vector<TokenId> generation_ends(const std::function<std::optional<TokenId>(std::string_view)>& find) {
  std::vector<TokenId> ends;
  for (const std::string_view name : kNames) {
    if (const auto id = find(name)) ends.push_back(*id);
  }
  const bool harmony = find("<|return|>") && (find("<|call|>") || find("<|calls|>"));
  const bool solar = find("<|flush|>") && (find("<|call|>") || find("<|calls|>"));
  if (const auto id = find("<|end|>"); id && !harmony && !solar) ends.push_back(*id);
  if (const auto id = find("</s>"); id && !find("<|tool_response>")) ends.push_back(*id);
  return ends;
}

}  // namespace shoal::tokenizer
