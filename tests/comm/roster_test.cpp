// The conclusions of rank 0 from what ranks report, without any rank.
#include "roster.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::comm {
namespace {

using ::testing::HasSubstr;

/// A standing at the start, after `begun` tensor collectives, of which it remembers the last `kept` calls.
Standing standing_with(const std::string& call, int64_t begun, size_t kept) {
  Standing standing{.place = "at the start", .waiting = {}, .lanes = {}};
  standing.lanes[static_cast<size_t>(Channel::tensors)] = {
      .begun = begun, .calls = std::vector<std::string>(kept, call), .last = begun};
  return standing;
}

TEST(Roster, ComparesCallsAllRanksStillKnow) {
  Roster roster({"node0", "node0", "node1"}, 0);
  roster.hear(0, standing_with("gradients (8 x Float)", 11, 8));
  roster.hear(1, standing_with("gradients (8 x Int)", 10, 8));
  roster.hear(2, standing_with("gradients (8 x Float)", 12, 8));  // remembers calls from the fifth on
  const auto found = roster.disagreement(2);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->cause, HasSubstr("they differ in number 5 of the tensor collectives"));
  EXPECT_THAT(found->page, HasSubstr("called   gradients (8 x Float) on ranks 0, 2"));
  EXPECT_THAT(found->page, HasSubstr("called   gradients (8 x Int) on rank 1"));
}

TEST(Roster, ComparesCallsWhenNoneIsKnownToAll) {
  Roster roster({"node0", "node0", "node1"}, 0);
  roster.hear(0, standing_with("gradients (8 x Float)", 11, 8));
  roster.hear(1, standing_with("gradients (8 x Int)", 11, 8));
  roster.hear(2, standing_with("gradients (8 x Float)", 40, 8));
  const auto found = roster.disagreement(2);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->cause, HasSubstr("they differ in number 4 of the tensor collectives"));
}

}  // namespace
}  // namespace gputrain::comm
