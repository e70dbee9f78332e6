#include "gputrain/monitor/straggler.hpp"

#include <gtest/gtest.h>

namespace gputrain::monitor {
namespace {

using device::Phase;
using device::PhaseTimes;

PhaseTimes times(double load, double forward, double backward, double communication) {
  PhaseTimes all{};
  all[static_cast<size_t>(Phase::load)] = load;
  all[static_cast<size_t>(Phase::forward)] = forward;
  all[static_cast<size_t>(Phase::backward)] = backward;
  all[static_cast<size_t>(Phase::communication)] = communication;
  return all;
}

const PhaseTimes kUsual = times(0.1, 1, 2, 0.5);

TEST(StragglerFinder, NamesRankAndPhaseInTheThirdWindow) {
  StragglerFinder finder;
  const std::vector<PhaseTimes> ranks{kUsual, kUsual, times(0.1, 1, 2.62, 0), kUsual};
  EXPECT_FALSE(finder.look(ranks));
  EXPECT_FALSE(finder.look(ranks));
  const auto found = finder.look(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(describe(*found, {"a:0", "a:1", "b:0", "b:1"}), "rank 2 @ b:0 +20 %, backward");
  EXPECT_FALSE(finder.look(ranks)) << "told already";
}

TEST(StragglerFinder, FindsWaitingForDataAmongTwoRanks) {
  StragglerFinder finder;
  const std::vector<PhaseTimes> ranks{kUsual, times(1.65, 1, 2, 0)};
  finder.look(ranks);
  finder.look(ranks);
  EXPECT_EQ(describe(*finder.look(ranks), {"a:0", "b:0"}), "rank 1 @ b:0 +50 %, data wait");
}

TEST(StragglerFinder, IgnoresHiccupsAndTimeSpentWaiting) {
  StragglerFinder finder;
  const std::vector<PhaseTimes> even{kUsual, times(0.1, 1, 2, 9), kUsual};
  const std::vector<PhaseTimes> hiccup{kUsual, kUsual, times(0.1, 9, 2, 0)};
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(finder.look(even));
    EXPECT_FALSE(finder.look(hiccup));
  }
  EXPECT_FALSE(finder.look({kUsual}));
  EXPECT_FALSE(finder.slowest());
}

// The stages of a pipeline have other work.
TEST(StragglerFinder, ComparesRanksThatDoTheSameWork) {
  const PhaseTimes heavy = times(0.1, 2, 4, 0);
  StragglerFinder finder(2), alone(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(finder.look({kUsual, kUsual, heavy, heavy}));
    EXPECT_FALSE(alone.look({kUsual, heavy}));
  }
  EXPECT_FALSE(alone.slowest());
  const std::vector<PhaseTimes> ranks{kUsual, times(0.1, 1.62, 2, 0), heavy, heavy};
  finder.look(ranks);
  finder.look(ranks);
  const auto found = finder.look(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(describe(*found, {"a:0", "a:1", "b:0", "b:1"}), "rank 1 @ a:1 +20 %, forward");
}

TEST(StragglerFinder, TellsAgainAfterARecovery) {
  StragglerFinder finder;
  const std::vector<PhaseTimes> even{kUsual, kUsual}, slow{kUsual, times(0.1, 2, 2, 0)};
  int count = 0;
  for (const auto& ranks : {slow, slow, slow, slow, even, slow, slow, slow}) count += finder.look(ranks) ? 1 : 0;
  EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace gputrain::monitor
