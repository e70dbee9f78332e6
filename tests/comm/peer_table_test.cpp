// The conclusions of rank 0 from what ranks report, without any rank.
#include "detector/peer_table.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::comm {
namespace {

using ::testing::HasSubstr;

/// A standing at the start, after `begun` tensor collectives, of which it remembers the last `kept` calls.
RankStatus status_with(const std::string& call, int64_t begun, size_t kept) {
  RankStatus status{.phase = "at the start", .waiting = {}, .lanes = {}};
  status.lanes[kTensors] = {.begun = begun, .calls = std::vector<std::string>(kept, call), .last = begun};
  return status;
}

TEST(Roster, ComparesCallsAllRanksStillKnow) {
  PeerTable peers({"node0", "node0", "node1"}, 0);
  peers.hear(0, status_with("gradients (8 x Float)", 11, 8));
  peers.hear(1, status_with("gradients (8 x Int)", 10, 8));
  peers.hear(2, status_with("gradients (8 x Float)", 12, 8));  // remembers calls from the fifth on
  const auto found = peers.disagreement(2);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->cause, HasSubstr("they differ in number 5 of the tensor collectives"));
  EXPECT_THAT(found->page, HasSubstr("called   gradients (8 x Float) on ranks 0, 2"));
  EXPECT_THAT(found->page, HasSubstr("called   gradients (8 x Int) on rank 1"));
}

TEST(Roster, ComparesCallsWhenNoneIsKnownToAll) {
  PeerTable peers({"node0", "node0", "node1"}, 0);
  peers.hear(0, status_with("gradients (8 x Float)", 11, 8));
  peers.hear(1, status_with("gradients (8 x Int)", 11, 8));
  peers.hear(2, status_with("gradients (8 x Float)", 40, 8));
  const auto found = peers.disagreement(2);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->cause, HasSubstr("they differ in number 4 of the tensor collectives"));
}

}  // namespace
}  // namespace gputrain::comm
