// Batch norm over several ranks, each with a part of the rows, against ATen in fp64 over all rows.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/ops/normalization.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using testing_support::random_leaf;
using testing_support::relative_error;

struct SyncCase {
  std::vector<int64_t> rows;  // per rank
  at::ScalarType type = at::kDouble;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  double offset = 0;  // of x from zero
  bool with_relu = false;
  double tolerance = 1e-12;
};

/// Inputs, rounded to `type`, and expected outputs, all in fp64.
struct SyncOperands {
  at::Tensor x, residual, dy, weight, bias;
};

struct SyncResult {
  at::Tensor y, dx, dweight, dbias, mean, variance;
};

SyncOperands operands_of(const SyncCase& input) {
  constexpr int64_t kChannels = 5;
  int64_t rows = 0;
  for (const int64_t of_rank : input.rows) rows += of_rank;
  const auto make = [&](at::IntArrayRef sizes, uint64_t seed) { return random_leaf(sizes, seed).detach(); };
  const std::vector<int64_t> sizes{rows, kChannels, 3, 4};
  const auto rounded = [&](const at::Tensor& tensor) { return tensor.to(input.type).to(at::kDouble); };
  return {rounded(make(sizes, 1) + input.offset), rounded(make(sizes, 2)), rounded(make(sizes, 3)),
          make({kChannels}, 4), make({kChannels}, 5)};
}

template <class Norm>
SyncResult run(const SyncCase& input, const SyncOperands& operands, at::ScalarType type, const Norm& norm) {
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const auto leaf = [](const at::Tensor& tensor) { return tensor.detach().clone().set_requires_grad(true); };
  const at::Tensor x = leaf(operands.x.to(type).contiguous(input.format)), weight = leaf(operands.weight.to(wide)),
                   bias = leaf(operands.bias.to(wide));
  SyncResult result{.mean = at::zeros({weight.numel()}, wide), .variance = at::ones({weight.numel()}, wide)};
  result.y = norm(x, weight, bias, result.mean, result.variance, operands.residual.to(type).contiguous(input.format));
  (result.y * operands.dy.to(type)).sum().backward();
  result.dx = x.grad();
  result.dweight = weight.grad();
  result.dbias = bias.grad();
  return result;
}

SyncResult expected_of(const SyncCase& input, const SyncOperands& all) {
  return run(input, all, at::kDouble,
             [&](const auto& x, const auto& weight, const auto& bias, const auto& mean, const auto& variance,
                 const auto& residual) {
               const at::Tensor y = at::batch_norm(x, weight, bias, mean, variance, true, 0.1, 1e-5, false);
               return input.with_relu ? at::relu(y + residual) : y;
             });
}

bool is_near(const char* what, const at::Tensor& ours, const at::Tensor& expected, double tolerance) {
  const double error = ours.numel() == 0 ? 0 : relative_error(ours, expected);
  if (!(error <= tolerance)) std::printf("%s is off by %g of it, more than %g\n", what, error, tolerance);
  return error <= tolerance;
}

/// Whether this rank's rows match the result for the whole batch.
bool agrees(comm::ProcessGroups& groups, const SyncCase& input) {
  const SyncOperands all = operands_of(input);
  const SyncResult expected = expected_of(input, all);
  const auto rank = static_cast<size_t>(groups.rank());
  int64_t begin = 0;
  for (size_t r = 0; r < rank; ++r) begin += input.rows[r];
  const auto own = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, input.rows[rank]); };
  const SyncOperands part{own(all.x), own(all.residual), own(all.dy), all.weight, all.bias};
  const BatchNormOptions options{.training = true, .group = &groups.tensors()};
  const SyncResult ours = run(input, part, input.type,
                              [&](const auto& x, const auto& weight, const auto& bias, const auto& mean,
                                  const auto& variance, const auto& residual) {
                                return input.with_relu
                                           ? batch_norm_relu(x, weight, bias, mean, variance, options, residual)
                                           : batch_norm(x, weight, bias, mean, variance, options);
                              });
  for (const at::Tensor& sum : {ours.dweight, ours.dbias}) groups.tensors().all_reduce_sum(sum, "gradients").wait();
  const double tolerance = input.tolerance, small = std::min(tolerance, 1e-5);
  return is_near("y", ours.y, own(expected.y), tolerance) && is_near("dx", ours.dx, own(expected.dx), tolerance) &&
         is_near("dweight", ours.dweight, expected.dweight, tolerance) &&
         is_near("dbias", ours.dbias, expected.dbias, tolerance) &&
         is_near("running mean", ours.mean, expected.mean, small) &&
         is_near("running variance", ours.variance, expected.variance, small);
}

int agree_on(std::vector<SyncCase> cases) {
  comm::ProcessGroups groups = join();
  int failed = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].rows.resize(static_cast<size_t>(groups.world_size()));
    if (agrees(groups, cases[i])) continue;
    std::printf("in case %zu\n", i);
    ++failed;
  }
  groups.control().barrier("end");
  return failed;
}

void expect_agreement(const std::string& body) {
  for (const int world : {1, 2, 4}) {
    RankProcesses ranks(body, world);
    for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << world << " ranks: " << result.output;
  }
}

const RankBody sync_fp64("sync_fp64", [] {
  return agree_on({{.rows = {2, 2, 2, 2}},
                   {.rows = {5, 1, 2, 4}},
                   {.rows = {3, 0, 2, 0}},
                   {.rows = {5, 1, 0, 4}, .with_relu = true},
                   {.rows = {2, 3, 1, 1}, .format = at::MemoryFormat::ChannelsLast, .with_relu = true}});
});

TEST(SynchronisedBatchNorm, MatchesOneBatchOfAllRowsInFp64) { expect_agreement("sync_fp64"); }

// The inputs have five digits after the decimal point here; sums of squares would lose them.
const RankBody sync_far_from_zero("sync_far_from_zero", [] {
  return agree_on({{.rows = {4, 3, 1, 2}, .type = at::kFloat, .tolerance = 1e-6},
                   {.rows = {4, 3, 0, 2}, .type = at::kFloat, .offset = 100, .tolerance = 3e-5},
                   {.rows = {4, 3, 1, 2}, .type = at::kFloat, .offset = 100, .with_relu = true, .tolerance = 1e-4}});
});

TEST(SynchronisedBatchNorm, KeepsDigitsFarFromZero) { expect_agreement("sync_far_from_zero"); }

// One rounding of y and dx: half a unit in the last place of 8 or 11 bits.
const RankBody sync_16_bits("sync_16_bits", [] {
  return agree_on(
      {{.rows = {4, 3, 1, 2}, .type = at::kBFloat16, .tolerance = 1.0 / 256},
       {.rows = {4, 0, 1, 2}, .type = at::kBFloat16, .format = at::MemoryFormat::ChannelsLast, .tolerance = 1.0 / 256},
       {.rows = {4, 3, 1, 2}, .type = at::kHalf, .tolerance = 1.0 / 2048}});
});

TEST(SynchronisedBatchNorm, RoundsOnceIn16Bits) { expect_agreement("sync_16_bits"); }

TEST(SynchronisedBatchNorm, ReturnsBiasForOneValuePerChannel) {
  comm::Group alone;
  const at::Tensor x = random_leaf({1, 3, 1, 1}, 1), weight = random_leaf({3}, 2), bias = random_leaf({3}, 3);
  const at::Tensor mean = at::zeros({3}, at::kDouble), variance = at::ones({3}, at::kDouble);
  const at::Tensor y = batch_norm(x, weight, bias, mean, variance, {.training = true, .group = &alone});
  EXPECT_LT(relative_error(y.view({3}), bias), 1e-12);
  EXPECT_LT(relative_error(mean, x.view({3}) * 0.1), 1e-15);
  EXPECT_LT(relative_error(variance, at::ones({3}, at::kDouble) * 0.9), 1e-15);
}

}  // namespace
}  // namespace gputrain::ops
