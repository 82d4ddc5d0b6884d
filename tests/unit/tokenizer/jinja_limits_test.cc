// Hostile templates: each ends soon, with one sentence.

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tokenizer/chat_template.h"
#include "tokenizer/jinja_heap.h"

namespace shoal::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// Small limits, so that the tests are quick under sanitizers too; what is tested is that each one holds.
jinja::Limits small() {
  jinja::Limits limits;
  limits.steps = 200'000;
  limits.live_bytes = 8 << 20;
  limits.text_bytes = 1 << 20;
  return limits;
}

std::string failure(const std::string& source, const jinja::Limits& limits = small()) {
  const auto parsed = ChatTemplate::parse(source, "", "");
  if (!parsed.ok()) return parsed.error().message();
  const auto rendered = parsed->render({Json::array(), nullptr, nullptr}, limits);
  return rendered.ok() ? "rendered " + std::to_string(rendered->size()) + " bytes"
                       : rendered.error().message();
}

constexpr const char* kSteps = "chat template, line 1: the template takes more than 200000 steps";
constexpr const char* kText = "chat template, line 1: the template makes a text of more than 1 MiB";
constexpr const char* kMemory = "chat template, line 1: the template needs more than 8 MiB of memory";
constexpr const char* kDepth =
    "chat template, line 1: the template nests calls and loops more than 1000 deep";

TEST(JinjaLimits, EndlessRecursionOfMacros) {
  EXPECT_EQ(failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), kDepth);
  EXPECT_EQ(failure("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"),
            kDepth);
  EXPECT_EQ(failure("{% macro m(x=m()) %}{% endmacro %}{{ m() }}"), kDepth);
  EXPECT_EQ(failure("{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}"), kDepth);
  EXPECT_EQ(failure("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), kDepth);
}

TEST(JinjaLimits, RecursionAtFullDefaultsFitsTheStack) {
  EXPECT_EQ(
      failure(
          "{% macro m(a, b=2) %}{% for x in [1] %}{% if x %}{{ ('a' ~ m(a | string, b=[b][0]))[1:] | trim }}"
          "{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}",
          jinja::Limits{}),
      kDepth);
}

TEST(JinjaLimits, EndlessLoops) {
  EXPECT_EQ(
      failure("{% for i in range(1000000000) %}{% endfor %}"),
      "chat template, line 1: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  EXPECT_EQ(failure("{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}"),
            kSteps);
  EXPECT_EQ(failure("{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}"), kSteps);
  EXPECT_EQ(failure("{% set d = {} %}{% for i in range(99999) %}{% set _ = d.update({i: i}) %}{% endfor %}"),
            kSteps);
}

TEST(JinjaLimits, HugeTexts) {
  EXPECT_EQ(failure("{{ 'a' * 10**9 }}"), kText);
  EXPECT_EQ(failure("{{ 10**18 * 'ab' }}"), kText);
  EXPECT_EQ(failure("{{ '%1000000000d' % 1 }}"), kText);
  EXPECT_EQ(failure("{{ '{:>999999999}'.format('x') }}"), kText);
  EXPECT_EQ(failure("{{ 'x'.center(10**9) }}"), kText);
  EXPECT_EQ(failure("{{ 'x' | indent(10**9) }}"), kText);
  EXPECT_EQ(failure("{{ [[1]] | tojson(indent=10**9) }}"), kText);
  EXPECT_EQ(failure("{{ ('a' * 10**6) | replace('a', 'bbbb') }}"), kText);
  EXPECT_EQ(failure("{{ ('a' * 10**6) | list | join('bbbb') }}"), kSteps);
  EXPECT_EQ(failure("{% for i in range(20) %}{{ 'a' * 10**5 }}{% endfor %}"), kText);
  EXPECT_EQ(
      failure(
          "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
      kText);
}

TEST(JinjaLimits, HugeContainers) {
  jinja::Limits patient = small();
  patient.steps = 2'000'000;
  EXPECT_EQ(failure("{{ [1] * 10**9 }}"), kText);
  EXPECT_EQ(
      failure(
          "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
          patient),
      kMemory);
  EXPECT_EQ(
      failure("{% set l = [] %}{% for i in range(99) %}{% set _ = l.append('a' * 10**6) %}{% endfor %}"),
      kMemory);
  EXPECT_EQ(failure("{{ [1] | batch(10**9, 'x') | list }}"),
            "chat template, line 1: the size of a batch or slice must be between 1 and 1,000,000");
}

TEST(JinjaLimits, DeepSource) {
  const std::string deep = "chat template, line 1: nested more than 200 deep";
  EXPECT_EQ(failure("{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}"), deep);
  EXPECT_EQ(failure("{{ " + repeated("[", 100'000)), deep);
  EXPECT_EQ(failure("{{ " + repeated("-", 100'000) + "1 }}"), deep);
  EXPECT_EQ(failure("{{ " + repeated("not ", 100'000) + "1 }}"), deep);
  EXPECT_EQ(failure(repeated("{% if 1 %}", 100'000)), deep);
  EXPECT_EQ(failure("{{ " + repeated("1 if 1 else ", 60'000) + "1 }}"), deep);
  EXPECT_EQ(failure("{% set " + repeated("(", 100'000) + "x"), deep);
}

TEST(JinjaLimits, LongChains) {
  const std::string high = "chat template, line 1: an expression has more than 300 levels";
  EXPECT_EQ(failure("{{ 1" + repeated(" + 1", 100'000) + " }}"), high);
  EXPECT_EQ(failure("{{ x" + repeated(".x", 100'000) + " }}"), high);
  EXPECT_EQ(failure("{{ x" + repeated("|e", 100'000) + " }}"), high);
  EXPECT_EQ(failure("{{ x" + repeated("()", 100'000) + " }}"), high);
  EXPECT_EQ(failure("{{ 1" + repeated(" ~ 1", 30'000) + " }}"), "rendered 30001 bytes");
  EXPECT_EQ(failure("{{ 1" + repeated(" + 1", 200) + " }}"), "rendered 3 bytes");
}

TEST(JinjaLimits, DeepValues) {
  const std::string nest =
      "{% set ns = namespace(v=[], t=()) %}{% for i in range(9999) %}{% set ns.v = [ns.v] %}"
      "{% set ns.t = (ns.t,) %}{% endfor %}";
  EXPECT_EQ(failure(nest), "rendered 0 bytes");
  EXPECT_EQ(failure(nest + "{{ ns.v }}"), "chat template, line 1: a value is nested too deep to be printed");
  EXPECT_EQ(failure(nest + "{{ ns.v == [ns.v] }}"),
            "chat template, line 1: values are nested too deep to be compared");
  EXPECT_EQ(failure(nest + "{{ {ns.t: 1} }}"), "chat template, line 1: a key is nested too deep");
  EXPECT_EQ(failure(nest + "{{ [ns.t] | unique | list }}"),
            "chat template, line 1: a key is nested too deep");
}

TEST(JinjaLimits, LongSourceIsRefused) {
  EXPECT_EQ(failure(std::string((1 << 20) + 1, 'a')),
            "the chat template has 1048577 bytes, more than 1048576");
}

TEST(JinjaLimits, DefaultsEndALoopWithinSeconds) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(
      failure(
          "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i * j %}{% endfor %}{% endfor %}",
          jinja::Limits{}),
      "chat template, line 1: the template takes more than 2000000 steps");
  // 0.2 s on a free core; sanitizers and a busy machine take their time.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(JinjaLimits, AnOrdinaryLongConversationStaysFarBelow) {
  Json messages = Json::array();
  for (int i = 0; i < 1000; ++i)
    messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", "hello there"}});
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
      "raise_exception('x') }}"
      "{% endif %}{{ '<|' + m['role'] + '|>' + m['content'] | trim + '\\n' }}{% endfor %}",
      "", "");
  ASSERT_TRUE(parsed.ok());
  const auto rendered = parsed->render({messages, nullptr, nullptr}, small());
  ASSERT_TRUE(rendered.ok()) << rendered.error().message();
  EXPECT_EQ(rendered->size(), 500 * (std::string("<|user|>hello there\n").size() +
                                     std::string("<|assistant|>hello there\n").size()));
}

}  // namespace
}  // namespace shoal::tokenizer
