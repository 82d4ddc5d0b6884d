#include "gateway/stream_ledger.h"

#include <gtest/gtest.h>

namespace shoal::gateway {
namespace {

using wire::InnerNote;
using Kind = InnerNote::Kind;
using Verdict = StreamLedger::Verdict;

InnerNote tokens(std::int32_t choice, std::int64_t index, std::vector<TokenId> ids, std::int64_t offset,
                 std::int64_t bytes) {
  InnerNote note;
  note.choice = choice;
  note.index = index;
  note.token_ids = std::move(ids);
  note.byte_offset = offset;
  note.bytes = bytes;
  return note;
}

InnerNote of_kind(Kind kind, std::int32_t choice = 0) {
  InnerNote note;
  note.kind = kind;
  note.choice = choice;
  return note;
}

TEST(StreamLedger, ForwardsWhatLiesBeyondItsMarksAndDropsWhatDoesNot) {
  StreamLedger ledger(2);
  EXPECT_FALSE(ledger.begun());
  EXPECT_EQ(ledger.judge(of_kind(Kind::kRole)), Verdict::kForward);
  EXPECT_TRUE(ledger.begun());
  EXPECT_EQ(ledger.judge(of_kind(Kind::kRole)), Verdict::kDrop);
  EXPECT_EQ(ledger.judge(tokens(0, 0, {5, 6}, 0, 3)), Verdict::kForward);
  EXPECT_EQ(ledger.judge(tokens(0, 0, {5, 6}, 0, 3)), Verdict::kDrop) << "again";
  EXPECT_EQ(ledger.judge(tokens(0, 1, {6}, 3, 0)), Verdict::kDrop);
  EXPECT_EQ(ledger.judge(tokens(0, 2, {7}, 3, 0)), Verdict::kForward) << "a token without text";
  EXPECT_EQ(ledger.judge(tokens(0, 3, {}, 3, 4)), Verdict::kForward) << "text without a token";
  EXPECT_EQ(ledger.judge(tokens(1, 0, {9}, 0, 1)), Verdict::kForward);
  EXPECT_EQ(ledger.tokens(), 4);
  EXPECT_EQ(ledger.resume_field(),
            R"("shoal_resume":[{"choice":0,"output_ids":[5,6,7],"emitted_bytes":7,"finished":false},)"
            R"({"choice":1,"output_ids":[9],"emitted_bytes":1,"finished":false}])");
}

TEST(StreamLedger, NeverSplices) {
  StreamLedger ledger(1);
  ASSERT_EQ(ledger.judge(tokens(0, 0, {5, 6}, 0, 3)), Verdict::kForward);
  EXPECT_EQ(ledger.judge(tokens(0, 1, {8}, 1, 1)), Verdict::kContradicts) << "another id at a known index";
  EXPECT_EQ(ledger.judge(tokens(0, 3, {8}, 3, 1)), Verdict::kContradicts) << "a gap of ids";
  EXPECT_EQ(ledger.judge(tokens(0, 2, {8}, 5, 1)), Verdict::kContradicts) << "a gap of text";
  EXPECT_EQ(ledger.judge(tokens(0, 1, {6, 7}, 3, 2)), Verdict::kContradicts) << "half known";
  EXPECT_EQ(ledger.judge(tokens(1, 0, {6}, 0, 2)), Verdict::kContradicts) << "a choice nobody asked for";
  EXPECT_EQ(ledger.judge(tokens(0, 2, {7}, 3, 2)), Verdict::kForward);
}

TEST(StreamLedger, FinishAndUsageComeOnceAndInOrder) {
  StreamLedger ledger(2);
  EXPECT_EQ(ledger.judge(of_kind(Kind::kUsage)), Verdict::kContradicts) << "before the end";
  EXPECT_EQ(ledger.judge(of_kind(Kind::kFinish, 0)), Verdict::kForward);
  EXPECT_EQ(ledger.judge(of_kind(Kind::kFinish, 0)), Verdict::kDrop);
  EXPECT_EQ(ledger.judge(tokens(0, 0, {5}, 0, 3)), Verdict::kContradicts) << "after its finish";
  EXPECT_FALSE(ledger.finished());
  EXPECT_EQ(ledger.judge(of_kind(Kind::kFinish, 1)), Verdict::kForward);
  EXPECT_TRUE(ledger.finished());
  EXPECT_EQ(ledger.judge(of_kind(Kind::kUsage)), Verdict::kForward);
  EXPECT_EQ(ledger.judge(of_kind(Kind::kUsage)), Verdict::kDrop) << "usage said twice";
}

TEST(InnerNote, ReadsWhatItWrites) {
  std::string line;
  tokens(3, 5, {310, 22}, 17, 6).append_to(line);
  EXPECT_EQ(line,
            ": shoal {\"choice\":3,\"index\":5,\"token_ids\":[310,22],\"byte_offset\":17,\"bytes\":6}\n");
  const auto read = InnerNote::parse(line);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, Kind::kTokens);
  EXPECT_EQ(read->token_ids, (std::vector<TokenId>{310, 22}));
  EXPECT_EQ(read->byte_offset, 17);
  InnerNote usage = of_kind(Kind::kUsage);
  usage.prompt_tokens = 9;
  usage.first_token_us = 1234;
  line.clear();
  usage.append_to(line);
  EXPECT_EQ(InnerNote::parse(line)->first_token_us, 1234);
  for (const char* wrong :
       {": shoal {", ": shoal []", ": shoal {\"choice\":-1}", ": shoal {\"kind\":\"other\"}",
        ": shoal {\"token_ids\":[1,\"2\"]}", ": other {}", ""})
    EXPECT_FALSE(InnerNote::parse(wrong)) << wrong;
}

}  // namespace
}  // namespace shoal::gateway
