#include <cmath>
#include <stdexcept>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "gputrain/nn/module.hpp"

namespace gputrain::nn {
namespace {

class Holder final : public Module {
 public:
  Holder(const Context& context, at::IntArrayRef sizes, const Init& init) : Module(context) {
    before = register_parameter("before", {5}, init, ParameterRole::weight);
    value = register_parameter("value", sizes, init, ParameterRole::weight);
  }
  at::Tensor before, value;
};

at::Tensor initial_value(at::IntArrayRef sizes, const Init& init, uint64_t seed = 7, const Context& context = {}) {
  Holder holder(context, sizes, init);
  initialize(holder, seed);
  return holder.value.detach();
}

TEST(Initialize, DrawsNormalValuesOfGivenDeviation) {
  const at::Tensor x = initial_value({300001}, Init::normal(0.02)).to(at::kDouble);
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.02 * 4 / std::sqrt(3e5));
  EXPECT_NEAR(x.std().item<double>(), 0.02, 0.02 * 0.005);
  const at::Tensor z = x.div(0.02);
  EXPECT_NEAR(z.pow(4).mean().item<double>(), 3, 0.1);  // kurtosis of a normal distribution
  EXPECT_NEAR(z.narrow(0, 0, 300000).mul(z.narrow(0, 1, 300000)).mean().item<double>(), 0, 0.01);  // neighbours
  EXPECT_NEAR(z.abs().le(1).to(at::kDouble).mean().item<double>(), 0.6827, 0.004);
}

TEST(Initialize, DrawsUniformValuesWithinBounds) {
  const at::Tensor x = initial_value({200000}, Init::uniform(0.5)).to(at::kDouble);
  EXPECT_GE(x.min().item<double>(), -0.5);
  EXPECT_LT(x.max().item<double>(), 0.5);
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.003);
  EXPECT_NEAR(x.var().item<double>(), 1.0 / 12, 0.001);
}

TEST(Initialize, DependsOnlyOnSeedAndName) {
  const at::Tensor x = initial_value({64}, Init::normal(1));
  EXPECT_TRUE(x.equal(initial_value({64}, Init::normal(1))));
  EXPECT_FALSE(x.equal(initial_value({64}, Init::normal(1), 8)));
  EXPECT_TRUE(x.narrow(0, 0, 13).equal(initial_value({13}, Init::normal(1))));  // a value depends only on its index
  Holder holder({}, {5}, Init::normal(1));
  initialize(holder, 7);
  EXPECT_FALSE(holder.before.equal(holder.value));
}

/// A module and a child whose parameter and buffer names can collide.
class Nested final : public Module {
 public:
  Nested(const Context& context, const std::string& child, const std::string& buffer) : Module(context) {
    add_child<Holder>(child, context, at::IntArrayRef{2}, Init::zeros());
    register_parameter("value", {2}, Init::zeros(), ParameterRole::weight);
    table = register_buffer(buffer, at::arange(4, at::kFloat), Init::as_given());
  }
  at::Tensor table;
};

TEST(Initialize, KeepsGivenBufferValues) {
  Nested module({}, "child", "table");
  initialize(module, 7);
  EXPECT_TRUE(module.table.equal(at::arange(4, at::kFloat)));
}

TEST(Initialize, RefusesTwoTensorsOfOneName) {
  Nested module({}, "child", "value");
  EXPECT_THROW(initialize(module, 7), std::logic_error);
}

TEST(Initialize, IgnoresThreadCount) {
  const int threads = at::get_num_threads();
  const at::Tensor row = initial_value({1000003}, Init::normal(1));
  const at::Tensor filters = initial_value({301, 51, 3, 5}, Init::normal(1));
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    EXPECT_TRUE(initial_value({1000003}, Init::normal(1)).equal(row)) << count;
    EXPECT_TRUE(initial_value({301, 51, 3, 5}, Init::normal(1), 7, {.channels_last = true}).equal(filters)) << count;
  }
  at::set_num_threads(threads);
}

TEST(Initialize, IgnoresMemoryOrderAndPrecision) {
  const at::Tensor expected = initial_value({4, 3, 5, 5}, Init::normal(1));
  const at::Tensor last = initial_value({4, 3, 5, 5}, Init::normal(1), 7, {.channels_last = true});
  EXPECT_FALSE(last.is_contiguous());
  EXPECT_TRUE(last.equal(expected));
  const at::Tensor wide =
      initial_value({4, 3, 5, 5}, Init::normal(1), 7, {.policy = ops::policy_of(ops::Precision::fp64)});
  EXPECT_TRUE(wide.to(at::kFloat).equal(expected));
}

// Expected values computed from the definition in another language: a change of the numbers would break published
// results.
TEST(Initialize, KeepsItsNumbersForever) {
  const at::Tensor x = initial_value({4}, Init::normal(1));
  const double expected[] = {0.34165674, -0.13454182, 0.13676733, -1.21222377};
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(x[i].item<double>(), expected[i], 1e-6) << i;
}

}  // namespace
}  // namespace gputrain::nn
