#include "gputrain/nn/packing.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/nn/layers.hpp"
#include "gputrain/ops/linear.hpp"
#include "ops/compare.hpp"

namespace gputrain::nn {
namespace {

using testing_support::random_leaf;
using testing_support::relative_error;

constexpr int64_t kIn = 40, kOut = 13;  // blocks of 64 go across rows, and the last one is short

std::shared_ptr<const Packing> packing(const std::string& name) {
  return packings().make(packings().with_defaults(name));
}

void freeze(Module& module) {
  module.each_parameter([](const std::string&, Parameter& parameter) { parameter.freeze(); });
}

/// A frozen layer, and one with the same bias whose weight is what the first one's is when it is packed.
struct Pair {
  Pair(const std::string& kind, at::ScalarType stored, Linear::Order order = Linear::Order::out_in)
      : packed(kContext, {.in = kIn, .out = kOut, .order = order}), dense(kContext, {.in = kIn, .out = kOut}) {
    for (Linear* layer : {&packed, &dense}) {
      initialize(*layer, 3);
      freeze(*layer);
    }
    const at::Tensor weight = packed.matrix().clone();
    packed.pack(packing(kind), stored);
    packed.packed().fill(weight);
    dense.weight().copy_(packed.matrix());
    dense.bias().copy_(packed.bias());
    error = relative_error(packed.matrix(), weight);
  }
  static inline const Context kContext{.policy = ops::policy_of(ops::Precision::fp64)};
  Linear packed, dense;
  double error = 0;  // of packing
};

class EveryPacking : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPacking, ComputesAsTheMatrixThatItStandsFor) {
  for (const auto order : {Linear::Order::out_in, Linear::Order::in_out}) {
    const Pair pair(GetParam(), at::kFloat, order);
    EXPECT_GT(pair.error, 1e-4);
    EXPECT_LT(pair.error, 0.2);
    const at::Tensor x = random_leaf({2, 3, kIn}, 1), same = random_leaf({2, 3, kIn}, 1),
                     dy = random_leaf({2, 3, kOut}, 2);
    const at::Tensor y = pair.packed.forward(x), expected = pair.dense.forward(same);
    EXPECT_LT(relative_error(y, expected), 1e-14);
    y.backward(dy);
    expected.backward(dy);
    EXPECT_LT(relative_error(x.grad(), same.grad()), 1e-14);
  }
}

TEST_P(EveryPacking, HasFrozenParametersThatKeepTheNameOfTheWeight) {
  Pair pair(GetParam(), at::kFloat);
  std::vector<std::string> names;
  int64_t bytes = 0;
  pair.packed.each_parameter([&](const std::string& name, const Parameter& parameter) {
    names.push_back(name);
    EXPECT_FALSE(parameter.trainable) << name;
    if (name != "bias") bytes += static_cast<int64_t>(parameter.value.nbytes());
  });
  EXPECT_THAT(names, ::testing::Contains("weight"));
  EXPECT_TRUE(std::ranges::all_of(names, [](const std::string& name) {
    return name == "bias" || name == "weight" || name.starts_with("weight_");
  }));
  EXPECT_LE(bytes, kIn * kOut + 4 * kOut);
}

TEST_P(EveryPacking, RoundsToTheTypeThatWasPacked) {
  const Pair pair(GetParam(), at::kBFloat16);
  const at::Tensor matrix = pair.packed.matrix();
  const bool are_rounded = matrix.equal(matrix.to(at::kBFloat16).to(at::kDouble));
  EXPECT_EQ(are_rounded, GetParam() != "int8");  // of whose files nobody knows the type
}

TEST_P(EveryPacking, ComesBackFromItsFiles) {
  const Pair pair(GetParam(), at::kBFloat16);
  const auto told =
      pair.packed.packed().packing().in_file("a.weight", pair.packed.packed().shape(), pair.packed.packed().parts());
  const auto named = [&](const std::string& name) {
    return std::ranges::find(told, name, [](const auto& one) { return one.first; });
  };
  const FileTensors files{.has = [&](const std::string& name) { return named(name) != told.end(); },
                          .tensor = [&](const std::string& name) { return named(name)->second; },
                          .where = [](const std::string&) { return "model.safetensors"; }};
  for (const std::string& kind : packings().names()) {
    const auto found = packing(kind)->find(files, "a.weight");
    ASSERT_EQ(found.has_value(), kind == GetParam()) << kind;
    if (!found) continue;
    EXPECT_EQ(found->names_beside.size() + 1, told.size());
    EXPECT_EQ(found->shape.rows, kOut);
    EXPECT_EQ(found->shape.columns, kIn);
    Linear read(Pair::kContext, {.in = kIn, .out = kOut});
    freeze(read);
    read.pack(found->packing, found->shape.stored);
    read.packed().fill(*found, "model.safetensors");
    EXPECT_TRUE(read.matrix().equal(pair.packed.matrix()));
  }
}

TEST_P(EveryPacking, IsMeantByItsOwnConfigAlone) {
  for (const std::string& kind : packings().names())
    EXPECT_EQ(packing(kind)->options_in(packing(GetParam())->quantization_config()).has_value(), kind == GetParam());
}

TEST_P(EveryPacking, GivesWayToTheMatrix) {
  for (const auto order : {Linear::Order::out_in, Linear::Order::in_out}) {
    Pair pair(GetParam(), at::kFloat, order);
    const at::Tensor before = pair.packed.matrix();
    pair.packed.unpack();
    EXPECT_FALSE(pair.packed.is_packed());
    EXPECT_TRUE(pair.packed.matrix().equal(before));
    EXPECT_EQ(pair.packed.weight().sizes().vec(), pair.packed.stored_sizes());
  }
}

INSTANTIATE_TEST_SUITE_P(Packings, EveryPacking, ::testing::ValuesIn(packings().names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace gputrain::nn
