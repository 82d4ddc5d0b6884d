#include "tokenizer/clean_up_spaces.h"

#include <gtest/gtest.h>

namespace shoal::tokenizer {
namespace {

TEST(CleanUpSpaces, RemovesOneSpaceBeforePunctuationAndContractions) {
  EXPECT_EQ(clean_up_spaces("Hello , it 's me !"), "Hello, it's me!");
  EXPECT_EQ(clean_up_spaces("a  ?"), "a ?");
  EXPECT_EQ(clean_up_spaces("we 're you 've I 'm he 'll he 'd"), "we're you've I'm he 'll he 'd");
  EXPECT_EQ(clean_up_spaces("a ' b"), "a'b");
  EXPECT_EQ(clean_up_spaces(""), "");
  EXPECT_EQ(clean_up_spaces(" "), " ");
}

}  // namespace
}  // namespace shoal::tokenizer
