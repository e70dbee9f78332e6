// Sums and rows of metrics are the same for any number of ranks; a rank may have no rows.
#include <algorithm>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {
namespace {

const Tally::Parts kParts{.sums = {"loss", "hits"},
                          .rows = {{.name = "scores", .columns = 2},
                                   {.name = "boxes", .columns = 1},
                                   {.name = "largest", .columns = 2, .most = 3}},
                          .vectors = {{.name = "pixels", .entries = 3}, {.name = "more", .entries = 1}}};

/// Rows of a batch: a sine, which is not sorted, and the row's number in all batches.
at::Tensor numbered(int64_t batch) {
  const at::Tensor numbers = at::arange(batch, at::kDouble).add(100 * batch);
  return at::stack({at::sin(numbers), numbers}, 1);
}

at::Tensor sorted(const at::Tensor& rows) { return rows.index_select(0, rows.select(1, 0).argsort(0, true)); }

bool has_largest(const Totals& totals, int64_t batches) {
  std::vector<at::Tensor> all;
  for (int64_t i = 1; i < batches; ++i) all.push_back(numbered(i));
  const at::Tensor rows = sorted(at::cat(all));
  return sorted(totals.rows.at("largest")).equal(rows.narrow(0, 0, std::min<int64_t>(3, rows.size(0))));
}

/// Rank r of W gets batches r, r + W, ...; batch i has i rows.
Totals tally_of(comm::ProcessGroups& groups, int64_t batches) {
  Tally tally(kParts, at::kCPU);
  for (int64_t i = groups.rank(); i < batches; i += groups.world_size()) {
    tally.add("loss", at::full({}, 0.5 * static_cast<double>(i), at::kDouble));
    tally.add("hits", at::full({}, i, at::kLong));
    tally.add("pixels", at::tensor({i, int64_t{0}, 2 * i}));
    tally.add_weight(i);
    if (i > 0) tally.append("largest", numbered(i));
    if (i > 0)
      tally.append("scores", at::arange(2 * i, at::TensorOptions().dtype(at::kFloat)).view({i, 2}).add(100 * i));
  }
  return tally.merge(groups);
}

bool has_all(const Totals& totals, int64_t batches) {
  const double all = static_cast<double>(batches * (batches - 1)) / 2;
  return totals.sums.at("loss") == all / 2 && totals.sums.at("hits") == all && totals.weight == all &&
         totals.vectors.at("pixels").equal(at::tensor({all, 0., 2 * all}, at::kDouble)) &&
         totals.vectors.at("more").equal(at::zeros({1}, at::kDouble)) &&
         totals.rows.at("scores").sizes() == at::IntArrayRef{static_cast<int64_t>(all), 2} &&
         totals.rows.at("boxes").sizes() == at::IntArrayRef{0, 1};
}

TEST(Tally, KeepsRowsInTheOrderOfBatches) {
  comm::ProcessGroups alone;
  const Totals totals = tally_of(alone, 3);
  EXPECT_TRUE(has_all(totals, 3));
  EXPECT_TRUE(has_largest(tally_of(alone, 7), 7));
  const at::Tensor expected = at::tensor({100., 101., 200., 201., 202., 203.}).view({3, 2}).to(at::kDouble);
  EXPECT_TRUE(totals.rows.at("scores").equal(expected));
}

const gputrain::testing::RankBody kTally("tally", [] {
  comm::ProcessGroups groups = gputrain::testing::join();
  const Totals many = tally_of(groups, 7), few = tally_of(groups, 2);  // of two batches, one or two ranks have no rows
  const double first = many.rows.at("scores").select(0, 0).select(0, 0).item<double>();
  const bool is_in_order = first == (groups.world_size() == 3 ? 300 : 200);  // the first batch with rows on rank 0
  groups.control().barrier("end");
  if (!has_largest(many, 7) || !has_largest(few, 2)) return 97;
  return has_all(many, 7) && has_all(few, 2) && is_in_order ? 0 : 98;
});

TEST(Tally, JoinsTheRowsOfAllRanks) {
  for (const int ranks : {2, 3}) {
    gputrain::testing::RankProcesses processes("tally", ranks);
    for (const auto& result : processes.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

}  // namespace
}  // namespace gputrain::tasks
