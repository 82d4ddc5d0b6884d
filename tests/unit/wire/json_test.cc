#include "wire/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "wire/json_writer.h"

namespace shoal::wire {
namespace {

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonDocument, RefusesWhatIsNoJson) {
  for (const std::string_view text :
       {"", " ", "{", "{\"a\":}", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":-Infinity}", "{\"a\":1e999}",
        "{\"a\":-1e999}", "{\"a\":01}", "{\"a\":1} trailing", "{'a':1}", "{\"a\":\"\xff\"}",
        "{\"a\":\"\xc0\xaf\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\x01\"}", "{\"a\":\"\\ud800\"}",
        "{\"a\":99999999999999999999999999}"}) {
    const auto document = JsonDocument::parse(text);
    EXPECT_EQ(document.status().code(), ErrorCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(JsonDocument::parse(std::string_view("{\"a\":1}\0", 8)).ok());
}

TEST(JsonDocument, BoundsDepth) {
  EXPECT_TRUE(JsonDocument::parse(nested(60)).ok());
  const auto deep = JsonDocument::parse(nested(100));
  ASSERT_FALSE(deep.ok());
  EXPECT_EQ(deep.error().message(), "the request's JSON nests deeper than 64 levels");
  EXPECT_FALSE(JsonDocument::parse(nested(2'000'000)).ok());
  EXPECT_FALSE(JsonDocument::parse(std::string(2'000'000, '[')).ok());
}

TEST(JsonDocument, RefusesALoneLowSurrogateWhereTheTextIsRead) {
  const auto document = JsonDocument::parse(R"({"a":"\udc00"})");
  if (!document.ok()) return;  // newer parsers refuse it themselves
  std::string out;
  EXPECT_FALSE(document->fields()->text("a", out).ok());
}

TEST(JsonFields, ReadsNumbersWithinTheirRange) {
  const auto document =
      JsonDocument::parse(R"({"a":1.5,"b":2,"c":"1","d":null,"e":3.0,"f":3.5,"g":true,"h":1e300})");
  ASSERT_TRUE(document.ok());
  const auto fields = document->fields();
  double number = 7;
  EXPECT_TRUE(fields->number("a", {0, 2}, number).ok());
  EXPECT_EQ(number, 1.5);
  EXPECT_TRUE(fields->number("b", {0, 2}, number).ok());
  EXPECT_EQ(number, 2);
  const Status open = fields->number("b", {2, 3, true}, number);
  EXPECT_EQ(open.message(), "b must be a number above 2 to 3");
  EXPECT_EQ(open.field(), "b");
  EXPECT_FALSE(fields->number("c", {}, number).ok());
  EXPECT_FALSE(fields->number("g", {}, number).ok());
  number = 7;
  EXPECT_TRUE(fields->number("d", {0, 1}, number).ok());
  EXPECT_TRUE(fields->number("missing", {0, 1}, number).ok());
  EXPECT_EQ(number, 7);
  int integer = 0;
  EXPECT_TRUE(fields->integer("e", 0, 5, integer).ok());
  EXPECT_EQ(integer, 3);
  EXPECT_FALSE(fields->integer("f", 0, 5, integer).ok());
  EXPECT_FALSE(fields->integer("g", 0, 5, integer).ok());
  EXPECT_FALSE(fields->integer("h", 0, 5, integer).ok());
}

TEST(JsonFields, NamesNestedFields) {
  const auto document = JsonDocument::parse(R"({"outer":{"inner":{"x":"y"}}})");
  const auto outer = document->fields()->object("outer");
  ASSERT_TRUE(outer.ok() && outer->has_value());
  const auto inner = (*outer)->object("inner");
  bool flag = false;
  EXPECT_EQ((*inner)->boolean("x", flag).field(), "outer.inner.x");
}

TEST(JsonWriter, EscapesAndRepairsText) {
  const auto written = [](std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
  };
  EXPECT_EQ(written("a\"b\\c\n\t\x01"), R"("a\"b\\c\n\t\u0001")");
  EXPECT_EQ(written("grüße 你好 🐟"), "\"grüße 你好 🐟\"");
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(written("\xff"), "\"" + bad + "\"");
  EXPECT_EQ(written("\xf0\x9f\x90"), "\"" + bad + "\"") << "a cut character is one broken sequence";
  EXPECT_EQ(written("\xf0\x9f\x90x"), "\"" + bad + "x\"");
  EXPECT_EQ(written("\xed\xa0\x80"), "\"" + bad + bad + bad + "\"");
  EXPECT_EQ(written("\xc0\xaf"), "\"" + bad + bad + "\"");
  EXPECT_EQ(written("\xf4\x90\x80\x80"), "\"" + bad + bad + bad + bad + "\"");
}

// Every pair and many triples of bytes come out as JSON that a strict parser reads.
TEST(JsonWriter, WritesValidJsonForAnyBytes) {
  std::string bytes(4, '\0');
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      bytes[0] = static_cast<char>(a);
      bytes[1] = static_cast<char>(b);
      bytes[2] = static_cast<char>(a * 31 + b);
      bytes[3] = static_cast<char>(b * 17 + a);
      std::string out;
      append_json_string(out, bytes);
      ASSERT_TRUE(JsonDocument::parse(out).ok()) << a << " " << b;
    }
  }
}

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  std::string text;
  JsonWriter out(text);
  out.begin_object().key("a").begin_array().integer(1).number(0.5).null().end_array().key("b").begin_object();
  out.end_object()
      .key_escaped("c\"")
      .string("x")
      .key("d")
      .boolean(true)
      .key("e")
      .number(1.0 / 0.0)
      .end_object();
  EXPECT_EQ(text, R"({"a":[1,0.5,null],"b":{},"c\"":"x","d":true,"e":null})");
  EXPECT_TRUE(nlohmann::json::accept(text));
}

}  // namespace
}  // namespace shoal::wire
