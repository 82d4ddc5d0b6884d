#include "wire/bootstrap_fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "wire/json.h"

namespace shoal::wire {
namespace {

Expected<std::vector<BootstrapEntry>> read(const std::string& body) {
  SHOAL_ASSIGN(document, JsonDocument::parse(body));
  SHOAL_ASSIGN(fields, document.fields());
  std::vector<BootstrapEntry> entries;
  SHOAL_TRY(read_bootstrap_fields(fields, entries));
  return entries;
}

std::string refusal(const std::string& body) {
  const auto entries = read(body);
  EXPECT_FALSE(entries.ok()) << body;
  return entries.ok() ? "" : entries.error().message();
}

TEST(BootstrapFields, OneValueIsForEveryEntry) {
  const auto entries = read(R"({"bootstrap_host":"10.0.0.1","bootstrap_port":9000,"bootstrap_room":[1,2]})");
  ASSERT_TRUE(entries.ok()) << entries.error().message();
  ASSERT_EQ(entries->size(), 2U);
  for (const BootstrapEntry& entry : *entries) {
    EXPECT_EQ(entry.host, "10.0.0.1");
    EXPECT_EQ(entry.port, 9000);
  }
  EXPECT_EQ((*entries)[1].room, 2U);
}

TEST(BootstrapFields, ListsHaveOneForEach) {
  const auto entries = read(
      R"({"bootstrap_host":["a","b"],"bootstrap_port":[null,7],"bootstrap_room":[9223372036854775807,0]})");
  ASSERT_TRUE(entries.ok()) << entries.error().message();
  EXPECT_EQ((*entries)[0].host, "a");
  EXPECT_EQ((*entries)[0].port, 8998);
  EXPECT_EQ((*entries)[0].room, (std::uint64_t{1} << 63) - 1);
  EXPECT_EQ((*entries)[1].host, "b");
  EXPECT_EQ((*entries)[1].port, 7);
}

TEST(BootstrapFields, NoneWhereThereAreNone) {
  for (const char* body : {"{}", R"({"bootstrap_room":null})", R"({"bootstrap_port":null})",
                           R"({"bootstrap_host":null,"bootstrap_room":null})"}) {
    const auto entries = read(body);
    ASSERT_TRUE(entries.ok()) << body;
    EXPECT_TRUE(entries->empty());
  }
}

TEST(BootstrapFields, WhatDoesNotFitIsNamed) {
  EXPECT_NE(refusal(R"({"bootstrap_host":"a"})").find("bootstrap_room"), std::string::npos);
  EXPECT_NE(refusal(R"({"bootstrap_room":[]})").find("bootstrap_room"), std::string::npos);
  EXPECT_NE(refusal(R"({"bootstrap_room":-1})").find("bootstrap_room"), std::string::npos);
  EXPECT_NE(refusal(R"({"bootstrap_room":[1,[2]]})").find("bootstrap_room[1]"), std::string::npos);
  EXPECT_NE(refusal(R"({"bootstrap_room":9223372036854775808})").find("bootstrap_room"), std::string::npos);
  EXPECT_NE(refusal(R"({"bootstrap_room":[1,2],"bootstrap_host":["a"]})").find("bootstrap_host"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"bootstrap_room":1,"bootstrap_host":["a","b"]})").find("bootstrap_host"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"bootstrap_room":1,"bootstrap_port":65536})").find("bootstrap_port"),
            std::string::npos);
}

TEST(BootstrapFields, AHostIsANameOrAnAddress) {
  for (const char* host : {"localhost", "10.0.0.1", "::1", "[fe80::1%eth0]", "a_b.example-1.org"})
    EXPECT_TRUE(read(fmt::format(R"({{"bootstrap_room":1,"bootstrap_host":"{}"}})", host)).ok()) << host;
  for (const char* host : {"a b", "a/b", "me@a", R"(a\r\nX: y)", R"(a\u0000)", "é"})
    EXPECT_NE(refusal(fmt::format(R"({{"bootstrap_room":1,"bootstrap_host":"{}"}})", host)).find("host"),
              std::string::npos)
        << host;
  refusal(R"({"bootstrap_room":1,"bootstrap_host":")" + std::string(256, 'a') + "\"}");
}

}  // namespace
}  // namespace shoal::wire
