#include "tokenizer/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "tokenizer/clean_up_spaces.h"
#include "tokenizer/vectors.h"

namespace shoal::tokenizer {
namespace {

std::shared_ptr<const Tokenizer> make(VocabularySpec spec) {
  auto tokenizer = make_gguf_tokenizer(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  return *tokenizer;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.error().message();
  return *ids;
}

using Ids = std::vector<TokenId>;

TEST(GgufTokenizer, ByteLevelMergesByRank) {
  const auto tokenizer = make(byte_level_spec());
  EXPECT_EQ(encode(*tokenizer, "helhe"), (Ids{257, 256}));
  EXPECT_EQ(tokenizer->decode(Ids{257, 256}, false), "helhe");
  EXPECT_EQ(tokenizer->piece(257), "hel");
  EXPECT_EQ(tokenizer->piece(' '), " ");
  EXPECT_EQ(tokenizer->piece(-1), "");
  EXPECT_EQ(tokenizer->piece(260), "");
}

TEST(GgufTokenizer, WrittenControlTokensAreIdsOnlyWhereParsed) {
  const auto tokenizer = make(byte_level_spec());
  EXPECT_EQ(encode(*tokenizer, "<|im_end|>"), (Ids{259}));
  EXPECT_EQ(encode(*tokenizer, "<|im_end|>", {.add_special = false, .parse_special = false}).size(), 10u);
  EXPECT_TRUE(tokenizer->is_special(259));
  EXPECT_TRUE(tokenizer->is_end_of_generation(259));
  EXPECT_FALSE(tokenizer->is_end_of_generation(258));
  EXPECT_EQ(tokenizer->eos_text(), "<|im_end|>");
  EXPECT_EQ(tokenizer->decode(Ids{258, 'a', 259}, true), "a");
  EXPECT_EQ(tokenizer->decode(Ids{258, 'a', 259}, false), "<|im_start|>a<|im_end|>");
}

TEST(GgufTokenizer, AddsSpecialTokensAsTheFileSays) {
  VocabularySpec spec = byte_level_spec();
  spec.add_bos = true;
  spec.add_eos = true;
  const auto tokenizer = make(std::move(spec));
  EXPECT_EQ(encode(*tokenizer, "a", {.add_special = true}), (Ids{258, 'a', 259}));
  EXPECT_EQ(encode(*tokenizer, "a"), (Ids{'a'}));
  EXPECT_TRUE(tokenizer->add_bos());
}

TEST(GgufTokenizer, PlainTextNeverBecomesAControlToken) {
  // "<", "s>" and "<s>" are all in the vocabulary, so merging alone would make the begin token.
  const auto tokenizer = make(scored_spec());
  const Ids ids = encode(*tokenizer, "<s>", {.add_special = false, .parse_special = false});
  for (const TokenId id : ids) EXPECT_FALSE(tokenizer->is_special(id));
  EXPECT_EQ(encode(*tokenizer, "<s>"), (Ids{1}));
}

TEST(GgufTokenizer, SentencePiecePutsASpaceBeforeTextAndTakesItAway) {
  const auto tokenizer = make(scored_spec());
  const TokenId space_ab = *tokenizer->find("\u2581ab");
  EXPECT_EQ(encode(*tokenizer, "ab", {.add_special = true}), (Ids{1, space_ab}));
  EXPECT_EQ(tokenizer->decode(Ids{space_ab, space_ab}, false), "ab ab");
  EXPECT_EQ(tokenizer->decode(Ids{1, space_ab}, true), "ab");
  Detokenizer continued(tokenizer, true, true);
  EXPECT_EQ(continued.push(space_ab), " ab");
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "\u20AC"), false), "\u20AC");  // by bytes
}

TEST(GgufTokenizer, UnknownCharactersWithoutByteTokensAreOneUnknownToken) {
  VocabularySpec spec = scored_spec();
  for (std::size_t i = 0; i < spec.types.size(); ++i) {
    if (spec.types[i] == 6) spec.types[i] = 5;
  }
  for (std::size_t i = 3; i < 259; ++i) spec.tokens[i] = "unused" + std::to_string(i);
  spec.add_space_prefix = false;
  const auto tokenizer = make(std::move(spec));
  EXPECT_EQ(encode(*tokenizer, "a\u20AC\u20ACb"), (Ids{260, 0, 261}));
}

TEST(GgufTokenizer, BrokenUtf8IsEncodedAsReplacementCharacters) {
  const auto tokenizer = make(byte_level_spec());
  EXPECT_EQ(encode(*tokenizer, "a\xFFz"), encode(*tokenizer, "a\uFFFDz"));
  EXPECT_EQ(encode(*tokenizer, "\xE2\x82"), encode(*tokenizer, "\uFFFD"));
}

TEST(GgufTokenizer, RandomBytesRoundTripAsTheirRepairedText) {
  const auto tokenizer = make(byte_level_spec());
  std::mt19937 random(11);
  for (int run = 0; run < 3000; ++run) {
    std::string bytes(random() % 80, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (run % 2 ? 256 : 128));
    const Ids ids = encode(*tokenizer, bytes, {.add_special = false, .parse_special = false});
    ASSERT_EQ(tokenizer->decode(ids, false), to_valid_utf8(bytes));
  }
}

TEST(GgufTokenizer, StreamsLikeWholeForRandomIds) {
  expect_random_ids_stream_like_whole(make(byte_level_spec()), 300);
  expect_random_ids_stream_like_whole(make(scored_spec()), 300);
}

TEST(GgufTokenizer, AnyThreadMayUseIt) {
  const auto tokenizer = make(byte_level_spec());
  const Ids expected = encode(*tokenizer, "hello hello <|im_end|> 123");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int run = 0; run < 200; ++run)
        EXPECT_EQ(*tokenizer->encode("hello hello <|im_end|> 123"), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What is done to a good vocabulary, and a word that the error must have.
struct Broken {
  const char* name;
  bool scored;
  std::function<void(VocabularySpec&)> spoil;
  const char* says;
};

TEST(GgufTokenizer, RefusesVocabulariesThatContradictThemselves) {
  const Broken cases[] = {
      {"no tokens", false, [](auto& s) { s.tokens.clear(); }, "no tokens"},
      {"types too short", false, [](auto& s) { s.types.pop_back(); }, "token_type"},
      {"scores too long", true, [](auto& s) { s.scores.push_back(0); }, "scores"},
      {"no scores", true, [](auto& s) { s.scores.clear(); }, "scores"},
      {"score not a number", true, [](auto& s) { s.scores[5] = std::numeric_limits<float>::quiet_NaN(); },
       "score"},
      {"token twice", false, [](auto& s) { s.tokens[257] = "he"; }, "twice"},
      {"unknown type", false, [](auto& s) { s.types[3] = 77; }, "type 77"},
      {"byte with another name", true, [](auto& s) { s.tokens[3] = "<0xZZ>"; }, "<0x0A>"},
      {"no merges", false, [](auto& s) { s.merges.clear(); }, "merges"},
      {"empty merge", false, [](auto& s) { s.merges[1] = ""; }, "merge 1"},
      {"merge of one", false, [](auto& s) { s.merges[1] = "he"; }, "merge 1"},
      {"merge ends in space", false, [](auto& s) { s.merges[1] = "he "; }, "merge 1"},
      {"merge of an unknown token", false, [](auto& s) { s.merges[1] = "xx y"; }, "not in the vocabulary"},
      {"merge to an unknown token", false, [](auto& s) { s.merges[1] = "a b"; }, "not in the vocabulary"},
      {"bos beyond", false, [](auto& s) { s.bos = 260; }, "bos_token_id 260"},
      {"bos negative", false, [](auto& s) { s.bos = -1; }, "bos_token_id -1"},
      {"eos beyond", true, [](auto& s) { s.eos = 1ll << 40; }, "eos_token_id"},
      {"eot beyond", false, [](auto& s) { s.eot = 4294967295; }, "eot_token_id"},
      {"add_bos without bos", false, [](auto& s) { s.add_bos = true, s.bos.reset(); },
       "bos_token_id is missing"},
      {"add_eos without eos", false, [](auto& s) { s.add_eos = true, s.eos.reset(); },
       "eos_token_id is missing"},
      {"unknown model", false, [](auto& s) { s.model = "wordpiece"; }, "'wordpiece'"},
      {"unknown pre-tokenizer", false, [](auto& s) { s.pre = "nonesuch"; }, "'nonesuch'"},
  };
  for (const Broken& broken : cases) {
    VocabularySpec spec = broken.scored ? scored_spec() : byte_level_spec();
    broken.spoil(spec);
    const auto tokenizer = make_gguf_tokenizer(std::move(spec));
    ASSERT_FALSE(tokenizer.ok()) << broken.name;
    const std::string message = tokenizer.error().message();
    EXPECT_TRUE(message.starts_with("toy.gguf: ")) << message;
    EXPECT_NE(message.find(broken.says), std::string::npos) << broken.name << ": " << message;
  }
}

TEST(GgufTokenizer, SurvivesTokensThatAreNotUtf8) {
  VocabularySpec spec = byte_level_spec();
  spec.tokens.emplace_back("\xFF\xFE\xE2\x82");
  spec.tokens.emplace_back("");
  spec.types.insert(spec.types.end(), {1, 1});
  const auto tokenizer = make(std::move(spec));
  EXPECT_EQ(tokenizer->piece(260), "\xFF\xFE\xE2\x82");
  EXPECT_TRUE(is_valid_utf8(tokenizer->decode(Ids{260, 261, 260}, false)));
  expect_random_ids_stream_like_whole(tokenizer, 50);
}

class SharedGguf : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = shared_root() / "tokenizers/gguf" / GetParam();
    file_ = folder_ / (std::string("ggml-vocab-") + GetParam() + ".gguf");
    if (!std::filesystem::exists(file_)) GTEST_SKIP() << file_ << " is not here; set SHOAL_SHARED";
    auto tokenizer = Tokenizer::load(file_);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
    tokenizer_ = *tokenizer;
  }

  std::filesystem::path folder_, file_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    have += 6;
    if (have >= 8) out += static_cast<char>(bits >> (have -= 8) & 0xFF);
  }
  return out;
}

TEST_P(SharedGguf, GivesTheReferenceIdsAndText) {
  int decoded = 0;
  for (const auto& record : read_jsonl(folder_ / "vectors.jsonl")) {
    const std::string text = record["text"];
    const Ids ids = ids_of(record["ids"]), plain = ids_of(record["ids_plain"]);
    EXPECT_EQ(encode(*tokenizer_, text, {.add_special = true, .parse_special = true}), ids) << record["id"];
    EXPECT_EQ(encode(*tokenizer_, text, {.add_special = false, .parse_special = false}), plain)
        << record["id"];
    expect_streams_like_whole(tokenizer_, ids);
    std::string ours = tokenizer_->decode(plain, false);
    if (tokenizer_->cleans_up_spaces()) ours = clean_up_spaces(ours);
    // The reference's decoder had room for 64 bytes a token; one token of many dashes did not fit.
    if (ours.size() > 64 * plain.size() + 64) continue;
    EXPECT_EQ(ours, to_valid_utf8(from_base64(record["detok_b64"].get<std::string>()))) << record["id"];
    ++decoded;
  }
  EXPECT_GT(decoded, 250);
}

TEST_P(SharedGguf, GivesTheIdsOfThePublishedTestFile) {
  std::ifstream in(file_.string() + ".inp"), out(file_.string() + ".out");
  const std::string inputs((std::istreambuf_iterator<char>(in)), {});
  const std::string separator = "\n__ggml_vocab_test__\n";
  int records = 0;
  std::string line;
  for (std::size_t at = 0; std::getline(out, line) && at < inputs.size(); ++records) {
    const std::size_t end = std::min(inputs.find(separator, at), inputs.size());
    Ids expected;
    std::istringstream numbers(line);
    for (TokenId id; numbers >> id;) expected.push_back(id);
    const std::string text = inputs.substr(at, end - at);
    EXPECT_EQ(encode(*tokenizer_, text, {.add_special = false, .parse_special = false}), expected) << text;
    at = end + separator.size();
  }
  EXPECT_GT(records, 40);
}

TEST_P(SharedGguf, TakesAnyBytes) {
  std::mt19937 random(5);
  for (int run = 0; run < 500; ++run) {
    std::string bytes(random() % 60, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (run % 2 ? 256 : 128));
    for (const TokenId id :
         encode(*tokenizer_, bytes, {.add_special = true, .parse_special = run % 3 == 0})) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer_->vocab_size());
    }
  }
}

TEST_P(SharedGguf, StreamsLikeWholeForRandomIds) { expect_random_ids_stream_like_whole(tokenizer_, 200); }

INSTANTIATE_TEST_SUITE_P(Families, SharedGguf,
                         testing::Values("gpt-2", "starcoder", "falcon", "deepseek-coder", "llama-spm",
                                         "phi-3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DemoModel, TokenizesExactlyAsTheReference) {
  if (!std::filesystem::exists(demo_model()))
    GTEST_SKIP() << demo_model() << " is not here; ./quickstart fetches it";
  const auto loaded = Tokenizer::load(demo_model());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  const auto& tokenizer = *loaded;
  int texts = 0, runs = 0;
  for (const auto& record : read_jsonl(source_root() / "tests/oracle/data/smollm2_tokenizer.jsonl")) {
    const Ids ids = ids_of(record["ids"]);
    EXPECT_EQ(tokenizer->decode(ids, false), record["decoded"].get<std::string>());
    expect_streams_like_whole(tokenizer, ids);
    if (record.contains("text")) {
      const std::string text = record["text"];
      EXPECT_EQ(encode(*tokenizer, text, {.add_special = true, .parse_special = true}), ids) << text;
      EXPECT_EQ(encode(*tokenizer, text, {.add_special = false, .parse_special = false}),
                ids_of(record["ids_plain"]));
      ++texts;
    } else {
      EXPECT_EQ(tokenizer->decode(ids, true), record["decoded_skip_special"].get<std::string>());
      ++runs;
    }
  }
  EXPECT_GT(texts, 250);
  EXPECT_GT(runs, 70);
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->eos_text(), "<|im_end|>");
  EXPECT_TRUE(tokenizer->is_end_of_generation(*tokenizer->find("<|im_end|>")));
  EXPECT_NE(tokenizer->chat_template().find("messages"), std::string::npos);
}

TEST(DemoModel, StreamsLikeWholeForRandomIds) {
  if (!std::filesystem::exists(demo_model()))
    GTEST_SKIP() << demo_model() << " is not here; ./quickstart fetches it";
  const auto loaded = Tokenizer::load(demo_model());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  expect_random_ids_stream_like_whole(*loaded, 300);
}

TEST(Tokenizer, EncodesTheSmallModelsPromptsAsTheirReferencesDo) {
  int prompts = 0;
  for (const char* model : {"stories260k/stories260K-f32.gguf", "aidreams260k/aidreams260K-f32.gguf",
                            "babyllama-105/babyllama-105-f32.gguf", "story-656k/story-656k-f32.gguf",
                            "llama2-tiny-random-gguf/llama-2-tiny-random.gguf"}) {
    const std::filesystem::path path = shared_root() / "models" / model;
    if (!std::filesystem::exists(path)) continue;
    const auto loaded = Tokenizer::load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    for (const auto& record : read_jsonl(path.parent_path() / "reference.jsonl")) {
      if (!record.contains("prompt") || !record["prompt"].is_string()) continue;
      const std::string prompt = record["prompt"];
      EXPECT_EQ(encode(**loaded, prompt, {.add_special = true}), ids_of(record["prompt_ids"]))
          << model << ": " << prompt;
      ++prompts;
    }
    expect_random_ids_stream_like_whole(*loaded, 50);
  }
  if (prompts == 0)
    GTEST_SKIP() << shared_root() / "models"
                 << " is not here; set SHOAL_SHARED";
}

}  // namespace
}  // namespace shoal::tokenizer
