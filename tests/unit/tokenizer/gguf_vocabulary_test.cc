#include "tokenizer/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/gguf_file.h"
#include "tokenizer/tokenizer.h"

namespace shoal::tokenizer {
namespace {

// Writes GGUF metadata by hand: what a hostile file may hold, a careful writer would refuse.
class Metadata {
 public:
  void string(std::string_view key, std::string_view value) { entry(key, 8), text(value); }
  void uint32(std::string_view key, std::uint32_t value) { entry(key, 4), number(value); }
  void float32(std::string_view key, float value) { entry(key, 6), number(value); }
  void strings(std::string_view key, const std::vector<std::string>& values) {
    array(key, 8, values.size());
    for (const std::string& value : values) text(value);
  }
  void int32s(std::string_view key, const std::vector<std::int32_t>& values) {
    array(key, 5, values.size());
    for (const std::int32_t value : values) number(value);
  }

  Expected<VocabularySpec> read() const {
    std::string file = "GGUF";
    const auto put = [&](auto value) { file.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(std::uint32_t{3}), put(std::uint64_t{0}), put(count_);
    file += bytes_;
    file.resize((file.size() + 31) / 32 * 32);
    bytes_of_file_ = file;
    const auto parsed = formats::GgufFile::parse(std::as_bytes(std::span(bytes_of_file_)), "toy.gguf");
    if (!parsed.ok()) return parsed.error();
    return read_vocabulary(*parsed);
  }

 private:
  template <typename T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) { number(std::uint64_t{value.size()}), bytes_ += value; }
  void entry(std::string_view key, std::uint32_t type) { text(key), number(type), ++count_; }
  void array(std::string_view key, std::uint32_t type, std::uint64_t n) {
    entry(key, 9), number(type), number(n);
  }

  std::string bytes_;
  mutable std::string bytes_of_file_;
  std::uint64_t count_ = 0;
};

Metadata good() {
  Metadata m;
  m.string("general.architecture", "llama");
  m.string("tokenizer.ggml.model", "gpt2");
  m.string("tokenizer.ggml.pre", "smollm");
  m.strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  m.strings("tokenizer.ggml.merges", {"a b"});
  return m;
}

TEST(GgufVocabulary, ReadsWhatIsThereAndLeavesTheRestOpen) {
  Metadata m = good();
  m.uint32("tokenizer.ggml.eos_token_id", 2);
  m.string("tokenizer.chat_template", "{{ x }}");
  const auto spec = m.read();
  ASSERT_TRUE(spec.ok()) << spec.error().message();
  EXPECT_EQ(spec->tokens, (std::vector<std::string>{"a", "b", "ab"}));
  EXPECT_EQ(spec->merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(spec->pre, "smollm");
  EXPECT_EQ(spec->eos, 2);
  EXPECT_FALSE(spec->bos);
  EXPECT_FALSE(spec->add_bos);
  EXPECT_EQ(spec->chat_template, "{{ x }}");
}

TEST(GgufVocabulary, SaysWhereThereIsNone) {
  Metadata m;
  m.string("tokenizer.ggml.model", "gpt2");
  const auto spec = m.read();
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(spec.error().message().find("toy.gguf"), std::string::npos);
}

TEST(GgufVocabulary, RefusesValuesOfTheWrongType) {
  const auto refuses = [](std::string_view key, auto add) {
    Metadata m = good();
    add(m);
    const auto spec = m.read();
    ASSERT_FALSE(spec.ok()) << key;
    EXPECT_EQ(spec.error().code(), ErrorCode::kCorrupt) << key;
    EXPECT_NE(spec.error().message().find(key), std::string::npos) << spec.error().message();
  };
  refuses("tokenizer.ggml.bos_token_id", [](Metadata& m) { m.string("tokenizer.ggml.bos_token_id", "one"); });
  refuses("tokenizer.ggml.add_bos_token",
          [](Metadata& m) { m.string("tokenizer.ggml.add_bos_token", "yes"); });
  refuses("tokenizer.ggml.token_type", [](Metadata& m) { m.strings("tokenizer.ggml.token_type", {"1"}); });
  refuses("tokenizer.ggml.scores", [](Metadata& m) { m.uint32("tokenizer.ggml.scores", 1); });
  refuses("tokenizer.chat_template", [](Metadata& m) { m.float32("tokenizer.chat_template", 1); });
}

TEST(Tokenizer, NamesAModelThatIsNotThere) {
  const auto tokenizer = Tokenizer::load("/nonexistent/model.gguf");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.error().message().find("/nonexistent/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace shoal::tokenizer
