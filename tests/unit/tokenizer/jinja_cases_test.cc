// Small templates against Python's Jinja2: jinja_cases.jsonl, which jinja_cases.py writes.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "material.h"
#include "tokenizer/chat_template.h"

namespace shoal::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

struct Cases {
  ChatRequest request;
  std::vector<Json> lines;
};

Cases read_cases() {
  std::ifstream file(testing_material::source_tree() / "tests/unit/tokenizer/jinja_cases.jsonl");
  Cases cases;
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line);
    if (!json.contains("context")) {
      cases.lines.push_back(std::move(json));
      continue;
    }
    cases.request.kwargs = json["context"];
    cases.request.messages = cases.request.kwargs["messages"];
    cases.request.kwargs.erase("messages");
  }
  return cases;
}

class JinjaCases : public testing::TestWithParam<const char*> {
 protected:
  // The clock of the recorded renderings: 2025-03-09 14:05:06.
  void SetUp() override { setenv("SOURCE_DATE_EPOCH", "1741529106", 1); }
  void TearDown() override { unsetenv("SOURCE_DATE_EPOCH"); }
};

TEST_P(JinjaCases, EqualJinja2) {
  const Cases cases = read_cases();
  int seen = 0;
  for (const Json& line : cases.lines) {
    if (line["group"] != GetParam()) continue;
    ++seen;
    const auto source = line["template"].get<std::string>();
    SCOPED_TRACE(source);
    const auto parsed = ChatTemplate::parse(source, "", "");
    if (line.contains("error")) {
      EXPECT_TRUE(!parsed.ok() || !parsed->render(cases.request).ok()) << line["error"];
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    const auto rendered = parsed->render(cases.request);
    ASSERT_TRUE(rendered.ok()) << rendered.error().message();
    EXPECT_EQ(*rendered, line["rendered"].get<std::string>());
  }
  EXPECT_GT(seen, 0);
}

INSTANTIATE_TEST_SUITE_P(Groups, JinjaCases,
                         testing::Values("whitespace", "expressions", "statements", "loops", "macros",
                                         "filters", "tests", "methods", "json", "errors"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace shoal::tokenizer
