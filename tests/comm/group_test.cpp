#include "gputrain/comm/group.hpp"

#include <dirent.h>

#include <cstdio>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"

namespace gputrain::comm {
namespace {

using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;

#define RANK_EXPECT(condition)                               \
  do {                                                       \
    if (!(condition)) {                                      \
      std::printf("%d: not so: %s\n", __LINE__, #condition); \
      return 98;                                             \
    }                                                        \
  } while (false)

void expect_success(RankProcesses& ranks) {
  for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
}

int count_entries(const char* folder) {
  int count = 0;
  DIR* open = ::opendir(folder);
  while (::readdir(open) != nullptr) ++count;
  ::closedir(open);
  return count;
}

const RankBody collectives("collectives", [] {
  ProcessGroups groups = join();
  const int world = groups.world_size(), rank = groups.rank();
  for (Group* group : {&groups.tensors(), &groups.control()}) {
    const at::Tensor numbers = at::arange(1000, at::kDouble) * (rank + 1);
    group->all_reduce_sum(numbers, "numbers").wait();
    RANK_EXPECT(at::equal(numbers, at::arange(1000, at::kDouble) * (world * (world + 1) / 2)));

    const at::Tensor word = at::full({3}, rank, at::kLong);
    RANK_EXPECT(
        at::equal(group->all_gather(word, "word"), at::arange(world, at::kLong).unsqueeze(1).expand({world, 3})));
    group->broadcast(word, world - 1, "word");
    RANK_EXPECT(at::equal(word, at::full({3}, world - 1, at::kLong)));

    // The sum of everybody's parts: part p of rank r is r + 1 times the numbers from 10 p on.
    const at::Tensor parts = at::arange(10 * world, at::kFloat) * (rank + 1);
    const at::Tensor mine = at::arange(10 * rank, 10 * (rank + 1), at::kFloat), summed = at::empty({10}, at::kFloat);
    group->reduce_scatter_sum(parts.clone(), summed, "parts").wait();
    RANK_EXPECT(at::equal(summed, mine * (world * (world + 1) / 2)));
    const at::Tensor in_place = parts.narrow(0, 10 * rank, 10);
    group->reduce_scatter_sum(parts, in_place, "parts").wait();
    RANK_EXPECT(at::equal(in_place, summed));
    const at::Tensor all = at::empty({10 * world}, at::kFloat);
    group->all_gather_into(all, mine, "parts").wait();
    RANK_EXPECT(at::equal(all, at::arange(10 * world, at::kFloat)));
    all.fill_(-1);
    all.narrow(0, 10 * rank, 10).copy_(mine);
    group->all_gather_into(all, all.narrow(0, 10 * rank, 10), "parts").wait();
    RANK_EXPECT(at::equal(all, at::arange(10 * world, at::kFloat)));
    group->barrier("end");
  }
  return 0;
});

TEST(ProcessGroup, AddsGathersAndBroadcasts) {
  for (const int world : {2, 4}) {
    RankProcesses ranks("collectives", world);
    expect_success(ranks);
  }
}

const RankBody many_in_flight("many_in_flight", [] {
  ProcessGroups groups = join();
  std::vector<at::Tensor> buckets;
  std::vector<Pending> pending;
  for (int i = 0; i < 40; ++i) {
    buckets.push_back(at::full({i % 7 == 0 ? 300000 : 10 + i}, i + groups.rank(), at::kFloat));
    pending.push_back(groups.tensors().all_reduce_sum(buckets.back(), "bucket"));
    const at::Tensor count = at::full({1}, 1, at::kLong);
    Pending agreed = groups.control().all_reduce_sum(count, "count");
    agreed.wait();
    RANK_EXPECT(count.item<int64_t>() == groups.world_size());
  }
  for (int i = 39; i >= 0; --i) pending[static_cast<size_t>(i)].wait();
  for (int i = 0; i < 40; ++i) {
    RANK_EXPECT(at::equal(buckets[static_cast<size_t>(i)],
                          at::full({buckets[static_cast<size_t>(i)].numel()}, 2 * i + 1, at::kFloat)));
  }
  return 0;
});

TEST(ProcessGroup, RunsManyCollectivesOfBothGroupsAtOnce) {
  RankProcesses ranks("many_in_flight", 2);
  expect_success(ranks);
}

TEST(ProcessGroup, NeedsNoThreadsOrSocketsForOneRank) {
  const int threads = count_entries("/proc/self/task"), descriptors = count_entries("/proc/self/fd");
  ProcessGroups groups(Rendezvous{.master_address = "127.0.0.1", .master_port = 1}, {});
  EXPECT_TRUE(groups.alone());
  const at::Tensor numbers = at::arange(5);
  groups.tensors().all_reduce_sum(numbers, "numbers").wait();
  groups.control().broadcast(numbers, 0, "numbers");
  groups.control().barrier("end");
  EXPECT_TRUE(at::equal(groups.control().all_gather(numbers, "numbers"), at::arange(5).unsqueeze(0)));
  EXPECT_EQ(count_entries("/proc/self/task"), threads);
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
}

}  // namespace
}  // namespace gputrain::comm
