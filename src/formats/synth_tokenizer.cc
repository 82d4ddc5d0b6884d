#include "formats/synth_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::formats {
namespace {

// Token types of tokenizer.ggml.token_type.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControl = 3;

constexpr std::array<std::string_view, 4> kSpecials = {"<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"};

// Left and right, "_" for a space; each uses bytes and products of earlier ones only.
constexpr std::array<std::array<std::string_view, 2>, 28> kMerges = {{
    {"_", "t"},  {"h", "e"}, {"i", "n"},   {"r", "e"}, {"o", "n"},  {"_t", "he"}, {"_", "a"},
    {"e", "r"},  {"n", "d"}, {"_a", "nd"}, {"a", "t"}, {"e", "n"},  {"i", "s"},   {"o", "r"},
    {"e", "s"},  {"_", "s"}, {"_", "w"},   {"_", "o"}, {"in", "g"}, {"_o", "f"},  {"_", "in"},
    {"_", "is"}, {"l", "l"}, {"_t", "o"},  {"o", "u"}, {"_", "y"},  {"_y", "ou"}, {"a", "n"},
}};
static_assert(kSynthSmallestVocab == 256 + kSpecials.size() + kMerges.size());

constexpr std::string_view kChatTemplate =
    "{%- for message in messages -%}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{ '<|im_start|>assistant\\n' }}\n"
    "{%- endif -%}\n";

std::string utf8(std::uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// GPT-2's alphabet: printable Latin-1 stands for itself, every other byte for a letter from U+0100 on.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> out;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    out.push_back(utf8(itself ? byte : next++));
  }
  return out;
}

}  // namespace

SynthTokenizer make_synth_tokenizer(std::int64_t vocab) {
  SynthTokenizer out;
  std::vector<std::string>& tokens = out.tokens;
  tokens = byte_alphabet();
  const std::string space = tokens[' '];
  const auto spelled = [&](std::string_view text) {
    return text.starts_with('_') ? space + std::string(text.substr(1)) : std::string(text);
  };
  for (const std::string_view special : kSpecials) out.specials.emplace_back(special);
  tokens.insert(tokens.end(), out.specials.begin(), out.specials.end());
  for (const auto& [left, right] : kMerges) {
    tokens.push_back(spelled(left) + spelled(right));
    out.merges.push_back(spelled(left) + " " + spelled(right));
  }
  for (std::int64_t n = 0; static_cast<std::int64_t>(tokens.size()) < vocab; ++n) {
    tokens.push_back(fmt::format("<filler_{}>", n));
  }
  out.chat_template = kChatTemplate;
  return out;
}

void add_synth_tokenizer(GgufWriter& writer, std::int64_t vocab) {
  const SynthTokenizer made = make_synth_tokenizer(vocab);
  std::vector<std::int32_t> types(made.tokens.size(), kNormal);
  for (std::size_t i = 0; i < kSpecials.size(); ++i) types[256 + i] = kControl;

  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "gpt-2");
  writer.add_strings("tokenizer.ggml.tokens", made.tokens);
  writer.add_int32s("tokenizer.ggml.token_type", types);
  writer.add_strings("tokenizer.ggml.merges", made.merges);
  writer.add_uint32("tokenizer.ggml.bos_token_id", kSynthBos);
  writer.add_uint32("tokenizer.ggml.eos_token_id", kSynthEos);
  writer.add_uint32("tokenizer.ggml.eot_token_id", kSynthTurnEnd);
  writer.add_bool("tokenizer.ggml.add_bos_token", false);
  writer.add_bool("tokenizer.ggml.add_eos_token", false);
  writer.add_string("tokenizer.chat_template", made.chat_template);
}

}  // namespace shoal::formats
