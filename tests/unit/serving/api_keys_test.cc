#include "serving/api_keys.h"

#include <gtest/gtest.h>

#include <fstream>

namespace shoal::serving {
namespace {

std::filesystem::path key_file(const std::string& name, const std::string& content) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path) << content;
  return path;
}

TEST(ApiKeys, WithoutAFileEveryoneIsAdmitted) {
  EXPECT_FALSE(ApiKeys().required());
  EXPECT_TRUE(ApiKeys().admits(""));
}

TEST(ApiKeys, AdmitsTheListedKeysOnly) {
  const auto keys = ApiKeys::load(key_file("keys_listed", "# the team\n\n  alpha-1 \r\nbeta-2"));
  ASSERT_TRUE(keys.ok());
  EXPECT_TRUE(keys->admits("Bearer alpha-1"));
  EXPECT_TRUE(keys->admits("bearer  beta-2 "));
  EXPECT_FALSE(keys->admits("Bearer alpha-10"));
  EXPECT_FALSE(keys->admits("Bearer "));
  EXPECT_FALSE(keys->admits("Basic alpha-1"));
  EXPECT_FALSE(keys->admits("alpha-1"));
  EXPECT_FALSE(keys->admits(""));
  EXPECT_FALSE(keys->admits("Bearer # the team"));
}

TEST(ApiKeys, RefusesAFileThatIsEmptyOrAbsent) {
  const auto path = key_file("keys_empty", "# nothing here\n\n");
  const auto empty = ApiKeys::load(path);
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.error().message().find(path.string()), std::string::npos);
  EXPECT_FALSE(ApiKeys::load("/no/such/keys").ok());
}

}  // namespace
}  // namespace shoal::serving
