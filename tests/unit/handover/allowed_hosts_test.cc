#include "handover/allowed_hosts.h"

#include <gtest/gtest.h>

namespace shoal::handover {
namespace {

TEST(AllowedHosts, AllWhereNoneIsNamed) {
  EXPECT_TRUE(AllowedHosts().all());
  EXPECT_TRUE(AllowedHosts().allows("169.254.169.254"));
}

TEST(AllowedHosts, AddressesByTheirNetworksAndNamesByThemselves) {
  const auto hosts = AllowedHosts::parse({"10.1.0.0/20", "192.0.2.7", "fd00::/12", "Prefill-1.example."});
  ASSERT_TRUE(hosts.ok()) << hosts.error().message();
  for (const char* host : {"10.1.0.1", "10.1.15.255", "192.0.2.7", "::ffff:10.1.2.3", "fd00::1", "fd0f:2::1",
                           "prefill-1.example", "PREFILL-1.example."})
    EXPECT_TRUE(hosts->allows(host)) << host;
  for (const char* host : {"10.1.16.0", "10.0.255.255", "192.0.2.8", "fd10::1", "::1", "::ffff:11.1.2.3",
                           "localhost", "prefill-1.example.org", "prefill-1", "", "127.0.0.1"})
    EXPECT_FALSE(hosts->allows(host)) << host;
}

// The system's resolver would take these for addresses.
TEST(AllowedHosts, OddFormsOfAddressesAreNames) {
  const auto hosts = AllowedHosts::parse({"127.0.0.0/8"});
  ASSERT_TRUE(hosts.ok());
  for (const char* host : {"127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1 ", "[::1]"})
    EXPECT_FALSE(hosts->allows(host)) << host;
}

TEST(AllowedHosts, EveryAddressOfAKind) {
  const auto hosts = AllowedHosts::parse({"0.0.0.0/0"});
  ASSERT_TRUE(hosts.ok());
  EXPECT_TRUE(hosts->allows("203.0.113.9"));
  EXPECT_FALSE(hosts->allows("2001:db8::1"));
}

TEST(AllowedHosts, WhatIsNoneIsNamed) {
  for (const char* entry :
       {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "fd00::/129", "name/8", "a b", "10.0.0.0/-1"}) {
    const auto hosts = AllowedHosts::parse({"10.0.0.1", entry});
    ASSERT_FALSE(hosts.ok()) << entry;
    EXPECT_NE(hosts.error().message().find("'" + std::string(entry) + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace shoal::handover
