#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "material.h"
#include "tokenizer/chat_template_file.h"

namespace shoal::tokenizer {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

fs::path shared() { return testing_material::shared(); }

Json hello() { return Json::parse(R"([{"role": "user", "content": "Hello!"}])"); }

std::string render(const std::string& source, const Json& kwargs = nullptr) {
  const auto parsed = ChatTemplate::parse(source, "<s>", "");
  if (!parsed.ok()) return parsed.error().message();
  const auto rendered = parsed->render({hello(), nullptr, kwargs});
  return rendered.ok() ? *rendered : rendered.error().message();
}

// Folders with a template and its recorded renderings.
std::vector<fs::path> vector_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  for (const char* parent : {"chat_templates", "tokenizers"}) {
    for (const auto& entry : fs::directory_iterator(shared() / parent, ignored)) {
      if (fs::exists(entry.path() / "chat_vectors.jsonl") &&
          fs::exists(entry.path() / "chat_template.jinja")) {
        folders.push_back(entry.path());
      }
    }
  }
  return folders;
}

// Where the reference fails for a type error of its own, ours may do as it likes, but must come back.
void check_vector(const ChatTemplate& chat_template, const Json& record) {
  SCOPED_TRACE(record["id"].get<std::string>());
  const auto rendered = chat_template.render({record["messages"], record["tools"], record["kwargs"]});
  if (record.contains("rendered")) {
    ASSERT_TRUE(rendered.ok()) << rendered.error().message();
    EXPECT_EQ(*rendered, record["rendered"].get<std::string>());
  } else if (record["error_kind"] == "raised") {
    ASSERT_FALSE(rendered.ok()) << *rendered;
    EXPECT_EQ("TemplateError: " + rendered.error().message(), record["error"].get<std::string>());
  }
}

TEST(ChatTemplate, OfficialTemplatesRenderAsTheReferenceDoes) {
  const std::vector<fs::path> folders = vector_folders();
  if (folders.empty()) GTEST_SKIP() << "no chat template vectors under " << shared();
  setenv("SOURCE_DATE_EPOCH", "1741529106", 1);
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.string());
    const auto loaded = load_chat_template(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    std::ifstream file(folder / "chat_vectors.jsonl");
    for (std::string line; std::getline(file, line);) check_vector(*loaded, Json::parse(line));
  }
  unsetenv("SOURCE_DATE_EPOCH");
}

TEST(ChatTemplate, RendersFromManyThreadsAtOnce) {
  const auto parsed = ChatTemplate::parse(
      "{% set x = namespace(n=0) %}{% macro m(v) %}[{{ v }}]{% endmacro %}{% for i in range(200) %}"
      "{% set x.n = x.n + i %}{{ m(x.n) }}{{ 'literal' | upper }}{% endfor %}",
      "", "");
  ASSERT_TRUE(parsed.ok());
  const auto expected = parsed->render({hello(), nullptr, nullptr});
  ASSERT_TRUE(expected.ok());
  std::vector<std::string> results(8);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] { result = *parsed->render({hello(), nullptr, nullptr}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, *expected);
}

TEST(ChatTemplate, KnowsTheVariablesOfARequest) {
  EXPECT_EQ(render("{{ bos_token }}{{ eos_token is defined }}"), "<s>False");
  EXPECT_EQ(render("{{ messages[0].content }}{{ tools is none }}{{ documents is none }}"), "Hello!TrueTrue");
  EXPECT_EQ(
      render("{{ enable_thinking }}{{ add_generation_prompt is defined }}", Json{{"enable_thinking", true}}),
      "TrueFalse");
  EXPECT_EQ(render("{{ bos_token }}", Json{{"bos_token", "mine"}}), "mine");
}

TEST(ChatTemplate, RefusesArgumentsThatWouldHideTheConversation) {
  EXPECT_EQ(render("x", Json{{"messages", 1}}), "an argument of a chat template may not be named messages");
  EXPECT_EQ(render("x", Json::array()), "the arguments of a chat template must be an object");
}

TEST(ChatTemplate, RepairsBrokenUtf8) {
  EXPECT_EQ(render("a\xFF{{ 'b\xC3' | length }}"),
            "a\xEF\xBF\xBD"
            "2");
  EXPECT_EQ(render("{{ x }}{{ x | upper }}", Json{{"x", "q\x80"}}), "q\xEF\xBF\xBDQ\xEF\xBF\xBD");
}

TEST(ChatTemplate, RefusesADeepRequest) {
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({std::move(deep)});
  EXPECT_EQ(render("{{ deep }}", Json{{"deep", deep}}),
            "chat template, line 1: the request is nested more than 200 deep");
}

TEST(ChatTemplate, TakesTheClockFromSourceDateEpoch) {
  setenv("SOURCE_DATE_EPOCH", "86400", 1);
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %H:%M') }}"), "1970-01-02 00:00");
  unsetenv("SOURCE_DATE_EPOCH");
  EXPECT_GE(render("{{ strftime_now('%Y') }}"), "2025");
}

TEST(ChatTemplateFile, NamesWhatIsMissing) {
  const fs::path folder = fs::temp_directory_path() / "shoal_chat_template_test";
  fs::create_directories(folder);
  auto loaded = load_chat_template(folder);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().message(), folder.string() + ": has no chat template");

  std::ofstream(folder / "chat_template.jinja") << "{{ bos_token }}{{ pad_token }}";
  std::ofstream(folder / "special_tokens.json") << R"({"bos_token": {"content": "<b>"}, "pad_token": "<p>"})";
  loaded = load_chat_template(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(*loaded->render({hello(), nullptr, nullptr}), "<b><p>");

  std::ofstream(folder / "chat_template.jinja") << "{% if %}";
  loaded = load_chat_template(folder);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().message(),
            folder.string() + ": chat template, line 1: expected an expression, got '%}'");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace shoal::tokenizer
