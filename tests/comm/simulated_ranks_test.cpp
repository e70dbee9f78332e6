#include "gputrain/comm/simulated_ranks.hpp"

#include <dirent.h>

#include <memory>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "gputrain/comm/process_groups.hpp"

namespace gputrain::comm {
namespace {

int open_files() {
  int count = 0;
  DIR* open = ::opendir("/proc/self/fd");
  while (::readdir(open) != nullptr) ++count;
  ::closedir(open);
  return count;
}

TEST(ImaginedGroup, KnowsItsPlaceAndOpensNothing) {
  const int before = open_files();
  ProcessGroups groups =
      ProcessGroups::simulated({.rank = 777, .world_size = 4096}, std::make_shared<CollectiveTraffic>());
  EXPECT_EQ(groups.rank(), 777);
  EXPECT_EQ(groups.world_size(), 4096);
  EXPECT_FALSE(groups.alone());
  EXPECT_EQ(groups.hosts().size(), 4096U);
  groups.control().barrier("nobody comes");
  EXPECT_EQ(open_files(), before);
}

TEST(ImaginedGroup, ReturnsTheRanksOwnNumbers) {
  ProcessGroups groups = ProcessGroups::simulated({.rank = 2, .world_size = 3}, std::make_shared<CollectiveTraffic>());
  const at::Tensor numbers = at::arange(5, at::kLong), same = numbers.clone();
  for (Group* group : {&groups.tensors(), &groups.control()}) {
    group->all_reduce_sum(numbers, "numbers").wait();
    group->reduce_sum(numbers, 0, "numbers").wait();
    group->broadcast(numbers, 1, "numbers");
    EXPECT_TRUE(at::equal(numbers, same));
    EXPECT_TRUE(at::equal(group->all_gather(numbers, "numbers"), same.unsqueeze(0).expand({3, 5})));
  }
}

TEST(ImaginedGroup, NeedsNoNcclForOtherDevices) {
  const auto traffic = std::make_shared<CollectiveTraffic>();
  ProcessGroups groups = ProcessGroups::simulated({.rank = 1, .world_size = 2}, traffic, at::kMeta);
  groups.tensors().all_reduce_sum(at::empty({250}, at::TensorOptions().device(at::kMeta)), "sum").wait();
  EXPECT_EQ(traffic->all_reduce, (CollectiveTraffic::Kind{.calls = 1, .bytes = 1000}));
}

TEST(ImaginedGroup, CountsBytesItWouldSend) {
  const auto traffic = std::make_shared<CollectiveTraffic>();
  ProcessGroups groups = ProcessGroups::simulated({.rank = 0, .world_size = 4}, traffic);
  const at::Tensor kilobyte = at::full({250}, 1, at::kFloat);
  groups.tensors().all_reduce_sum(kilobyte, "sum").wait();
  EXPECT_EQ(traffic->all_reduce, (CollectiveTraffic::Kind{.calls = 1, .bytes = 1000}));
  groups.tensors().reduce_sum(kilobyte, 0, "sum").wait();
  groups.tensors().broadcast(kilobyte, 0, "values");
  groups.tensors().broadcast(kilobyte, 1, "values");
  groups.tensors().all_gather(kilobyte, "all");
  groups.control().all_reduce_sum(kilobyte, "agreement").wait();
  EXPECT_EQ(traffic->broadcast, (CollectiveTraffic::Kind{.calls = 2, .bytes = 2000}));
  EXPECT_EQ(traffic->all_gather, (CollectiveTraffic::Kind{.calls = 1, .bytes = 1000}));
}

TEST(ImaginedGroup, IsAloneWithOneRank) {
  ProcessGroups groups = ProcessGroups::simulated({}, std::make_shared<CollectiveTraffic>());
  EXPECT_TRUE(groups.alone());
  EXPECT_EQ(groups.world_size(), 1);
}

}  // namespace
}  // namespace gputrain::comm
