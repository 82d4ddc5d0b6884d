#include "tokenizer/pretokenizers.h"

#include <algorithm>
#include <array>
#include <span>

#include "tokenizer/in_quotes.h"

namespace shoal::tokenizer {
namespace {

using Patterns = std::vector<std::string>;

// Parts that several families share.
const std::string kAnyCaseContraction = R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
const std::string kWordWithMark = R"([^\r\n\p{L}\p{N}]?\p{L}+)";
const std::string kSymbolsWithLineEnds = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
const std::string kLineEnds = R"(\s*[\r\n]+)";
const std::string kSpaces = R"(\s+(?!\S)|\s+)";
const std::string kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)" + kSpaces;
const std::string kCjk = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
const std::string kThreeAsciiDigits = "[0-9][0-9][0-9]";
// Letters that are not a lower-case (upper-case) ASCII letter: the tables behind these know no other case.
const std::string kUpper = R"([^\P{L}a-z])";
const std::string kLower = R"([^\P{L}A-Z])";

std::string alternatives(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) {
    if (!out.empty()) out += '|';
    out += part;
  }
  return out;
}

// The llama 3 shape; families differ in how many digits stand together and in the optional contraction.
std::string llama3_words(std::string_view digits) {
  return alternatives({kAnyCaseContraction, kWordWithMark, digits, kSymbolsWithLineEnds, kLineEnds, kSpaces});
}

std::string cased_words(std::string_view ending, std::string_view digits) {
  const std::string start = R"([^\r\n\p{L}\p{N}]?)";
  const std::string end(ending);
  return alternatives({start + kUpper + "*" + kLower + "+" + end, start + kUpper + "+" + kLower + "*" + end,
                       digits, R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)", kLineEnds, kSpaces});
}

const std::string kDeepSeek3Words = alternatives({R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)",
                                                  R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)",
                                                  R"( ?[\p{P}\p{S}]+[\r\n]*)", kLineEnds, kSpaces});

// Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee and other cased scripts, as the family lists them.
const std::string kDeepSeekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})"
    R"(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"
    R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
// U+3000 counts as a space, not as the start of its range of punctuation.
const std::string kDeepSeekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}-\x{3002}]+)";
// The family's range from U+0800 to U+4E00 without the white space in it, which counts as spaces alone.
const std::string kDeepSeekCjk =
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
// The look-behind changes no match: it keeps a long run of spaces inside a text from being tried at each
// space.
const std::string kTrailingSpaces = R"((?<!\s)\s+$)";

const std::string kBloomWords = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";
const std::string kYoutuScripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A})"
    R"(\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|)" +
    kCjk;

const std::string kOneDigit = R"(\p{N})";
const std::string kThreeDigits = R"(\p{N}{1,3})";

struct Family {
  std::vector<std::string_view> names;
  PreTokenizer pre;
};

const std::vector<Family>& families() {
  const auto make = [](Patterns patterns, bool ignore_merges, bool add_bos, bool cleans_spaces) {
    return PreTokenizer{std::move(patterns), ignore_merges, add_bos, cleans_spaces};
  };
  static const std::vector<Family> table = {
      {{"default", ""},
       make({R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, R"(\p{N}+)", kThreeAsciiDigits}, false, false, true)},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"},
       make({llama3_words(kThreeDigits)}, true, true, true)},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, make({llama3_words(kThreeDigits)}, false, false, true)},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "mpt", "olmo", "jais"},
       make({kGpt2Words}, false, false, true)},
      {{"trillion", "granite-docling"}, make({kGpt2Words}, false, false, false)},
      {{"smollm", "command-r"}, make({kOneDigit, kGpt2Words}, false, false, false)},
      {{"starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
       make({kOneDigit, kGpt2Words}, false, false, true)},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"},
       make({llama3_words(kOneDigit)}, false, false, false)},
      {{"stablelm2", "megrez"}, make({llama3_words(kOneDigit)}, false, false, true)},
      {{"qwen35"},
       make({alternatives({kAnyCaseContraction, R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)", kOneDigit,
                           R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)", kLineEnds, kSpaces})},
            false, false, false)},
      {{"deepseek-llm"},
       make({"[\r\n]", kDeepSeekLetters, kDeepSeekPunctuation, kTrailingSpaces, kDeepSeekCjk, R"(\p{N}+)"},
            false, false, false)},
      {{"deepseek-coder"},
       make({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, kOneDigit}, false, false, false)},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       make({kThreeDigits, kCjk, kDeepSeek3Words}, false, false, false)},
      {{"falcon"}, make({R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Words, kThreeAsciiDigits}, false, false, true)},
      {{"tekken"}, make({cased_words("", kOneDigit)}, true, true, false)},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
       make({cased_words(kAnyCaseContraction + "?", kThreeDigits)}, false, false, false)},
      {{"poro-chat"}, make({kBloomWords}, false, false, false)},
      {{"bloom", "gpt3-finnish"}, make({kBloomWords}, false, false, true)},
      {{"viking"}, make({kBloomWords, kOneDigit}, false, false, false)},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       make({alternatives({R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE]))", kWordWithMark, kOneDigit,
                           kSymbolsWithLineEnds, R"(\s*[\r\n])", kSpaces})},
            false, false, false)},
      {{"seed-coder"},
       make({alternatives({kAnyCaseContraction, kWordWithMark, kOneDigit, R"( ?[^\s\p{L}\p{N}\r\n]+)",
                           kLineEnds, kSpaces})},
            false, false, false)},
      {{"minicpm5"}, make({kThreeDigits, llama3_words(R"(\p{N}+)")}, true, false, true)},
      {{"laguna"}, make({R"([^\n]+|[\n]+)", llama3_words(kOneDigit)}, false, false, false)},
      {{"jais-2"},
       make({alternatives(
                {kAnyCaseContraction, kWordWithMark, kThreeDigits, kSymbolsWithLineEnds, kLineEnds,
                 R"(\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S))",
                 R"(\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"})},
            false, false, true)},
      {{"youtu"},
       make({kYoutuScripts, alternatives({R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)" + kAnyCaseContraction + "?",
                                          kOneDigit, R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)", kLineEnds, kSpaces})},
            true, false, false)},
      {{"chameleon"},
       make({"<sentinel:[0-9]+>", "(?:IMGIMG)[A-I]{1,4}Z", R"([\t\n]|    |  )", kOneDigit,
             R"([\p{P}!-/:-@\[-`{-~])", kGpt2Words},
            false, true, false)},
  };
  return table;
}

std::string known_names() {
  std::vector<std::string_view> names;
  for (const Family& family : families()) names.insert(names.end(), family.names.begin(), family.names.end());
  std::erase(names, "");
  std::sort(names.begin(), names.end());
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

}  // namespace

Expected<PreTokenizer> find_pretokenizer(std::string_view name) {
  for (const Family& family : families()) {
    if (std::find(family.names.begin(), family.names.end(), name) != family.names.end()) return family.pre;
  }
  return Status(ErrorCode::kUnsupported,
                "unknown pre-tokenizer " + in_quotes(name, 80) + "; known: " + known_names());
}

}  // namespace shoal::tokenizer
