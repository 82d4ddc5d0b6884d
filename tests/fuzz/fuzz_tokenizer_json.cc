// Feeds any bytes to the reader of tokenizer.json, and a few texts to the tokenizers that it accepts.
//
// Beyond crashes it checks the promises of Tokenizer: ids of the vocabulary, valid UTF-8 out, the same text
// by the stream as whole, errors of one sentence that name the file.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/hf_tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using namespace shoal;

void require(bool promise) {
  if (!promise) std::abort();
}

void check_decoding(const std::shared_ptr<const tokenizer::Tokenizer>& of, const std::vector<TokenId>& ids) {
  for (const bool skip_special : {false, true}) {
    const std::string whole = of->decode(ids, skip_special);
    require(tokenizer::is_valid_utf8(whole));
    tokenizer::Detokenizer stream(of, skip_special);
    std::string joined;
    for (const TokenId id : ids) joined += stream.push(id);
    joined += stream.finish();
    require(joined == whole);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = tokenizer::parse_hf_tokenizer(text, "tokenizer.json");
  if (!parsed) {
    const Status& error = parsed.error();
    require(error.message().starts_with("tokenizer.json: ") || error.code() == ErrorCode::kInvalidArgument);
    return 0;
  }
  const auto& of = *parsed;
  for (const std::string_view input :
       {"", "Hello  world, it's 12345.\n",
        " \xC3\xA9t\xC3\xA9 e\xCC\x81 \xEF\xAC\x81 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80 \xCE\xA3",
        "<s>a b</s>ab\xE2\x96\x81 a\xFF\xC3"}) {
    for (const bool special : {false, true}) {
      const auto ids = of->encode(input, {.add_special = special, .parse_special = special});
      if (!ids) {
        require(!ids.error().message().empty());
        continue;
      }
      for (const TokenId id : *ids) require(id >= 0 && id < of->vocab_size());
      check_decoding(of, *ids);
    }
  }
  std::vector<TokenId> every;
  for (TokenId id = -1; id <= std::min(of->vocab_size(), 300); ++id) {
    every.push_back(id);
    of->piece(id);
  }
  check_decoding(of, every);
  return 0;
}
