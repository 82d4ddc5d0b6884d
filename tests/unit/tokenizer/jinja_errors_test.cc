// What a template that goes wrong says, and the few places where it goes further than Jinja's sandbox.

#include <gtest/gtest.h>

#include <string>

#include "tokenizer/chat_template.h"

namespace shoal::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

ChatRequest conversation() {
  return {Json::parse(R"([{"role": "user", "content": null}])"), nullptr, Json{{"n", 3}}};
}

// The text, or the error's message.
std::string render(const std::string& source) {
  const auto parsed = ChatTemplate::parse(source, "<s>", "</s>");
  if (!parsed.ok()) return parsed.error().message();
  const auto rendered = parsed->render(conversation());
  return rendered.ok() ? *rendered : rendered.error().message();
}

TEST(JinjaErrors, RaisedMessagesArriveUnchanged) {
  const auto parsed = ChatTemplate::parse("{{ raise_exception('Roles must alternate: ' ~ n) }}", "", "");
  ASSERT_TRUE(parsed.ok());
  const auto rendered = parsed->render(conversation());
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(rendered.error().message(), "Roles must alternate: 3");
}

TEST(JinjaErrors, TypeErrorsNameTheLineAndTheCause) {
  EXPECT_EQ(render("a\n{{ 'x' + messages[0].content }}"),
            "chat template, line 2: can only concatenate str (not \"NoneType\") to str");
  EXPECT_EQ(render("{{ nobody.name }}"), "chat template, line 1: 'nobody' is undefined");
  EXPECT_EQ(render("{{ messages[0].name.first }}"),
            "chat template, line 1: 'dict object' has no attribute 'name'");
  EXPECT_EQ(render("{{ 1 < 'a' }}"),
            "chat template, line 1: '<' not supported between instances of 'int' and 'str'");
  EXPECT_EQ(render("{{ n() }}"), "chat template, line 1: 'int' object is not callable");
  EXPECT_EQ(render("{{ n | sparkle }}"), "chat template, line 1: No filter named 'sparkle'.");
  EXPECT_EQ(render("{{ n is shiny }}"), "chat template, line 1: No test named 'shiny'.");
  EXPECT_EQ(render("{{ 'a'.split(1) }}"),
            "chat template, line 1: split argument 'sep' must be a string, not int");
}

TEST(JinjaErrors, BrokenSourceIsRefusedWithItsLine) {
  const auto parsed = ChatTemplate::parse("a\nb\n{% if x %}", "", "");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(parsed.error().message(),
            "chat template, line 3: expected a tag 'endif', got the end of the template");
  EXPECT_EQ(render("{% include 'x' %}"),
            "chat template, line 1: 'include' needs another template, and a chat template stands alone");
  EXPECT_EQ(render("{% break %}"), "chat template, line 1: 'break' outside loop");
  EXPECT_EQ(render("{# never closed"), "chat template, line 1: Missing end of comment tag");
  EXPECT_EQ(render("{{ 99999999999999999999 }}"), "chat template, line 1: number is beyond 64 bits");
}

TEST(JinjaErrors, IntegersNeverWrap) {
  EXPECT_EQ(render("{{ 9223372036854775807 + 1 }}"),
            "chat template, line 1: integer result is beyond 64 bits");
  EXPECT_EQ(render("{{ -9223372036854775807 - 2 }}"),
            "chat template, line 1: integer result is beyond 64 bits");
  EXPECT_EQ(render("{{ 3037000500 * 3037000500 }}"),
            "chat template, line 1: integer result is beyond 64 bits");
  EXPECT_EQ(render("{{ 10 ** 19 }}"), "chat template, line 1: integer result is beyond 64 bits");
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) // -1 }}"),
            "chat template, line 1: integer result is beyond 64 bits");
}

TEST(JinjaErrors, ListsMayHoldThemselves) {
  EXPECT_EQ(render("{% set l = [1] %}{% set _ = l.append(l) %}{{ l | length }}"), "2");
  EXPECT_EQ(render("{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}"),
            "chat template, line 1: a value is nested too deep to be printed");
  EXPECT_EQ(render("{% set l = [1] %}{% set _ = l.append(l) %}{{ l | tojson }}"),
            "chat template, line 1: a value is nested too deep for JSON");
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self is defined }}"), "True");
}

TEST(JinjaErrors, VariablesOutliveTheLoopThatAMacroWasMadeIn) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}"
                   "{% if loop.first %}{% set ns.m = m %}{% endif %}{% endfor %}{{ ns.m() }}"),
            "1");
  EXPECT_EQ(render("{% set ns = namespace() %}{% macro outer(x) %}{% macro inner() %}{{ x }}{% endmacro %}"
                   "{% set ns.f = inner %}{% endmacro %}{{ outer('kept') }}{{ ns.f() }}"),
            "kept");
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% with y = 1 %}{% for i in [1, 2] if i > y %}{% set ns.l = loop %}"
             "{% endfor %}{% endwith %}{{ ns.l.index }}{{ ns.l.last }}"),
      "1True");
}

}  // namespace
}  // namespace shoal::tokenizer
