#include "gputrain/nn/module.hpp"

#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::nn {
namespace {

using testing::ElementsAre;

class Leaf final : public Module {
 public:
  explicit Leaf(const Context& context) : Module(context) {
    register_parameter("weight", {2, 3, 1, 1}, Init::ones(), ParameterRole::weight);
    register_buffer("mean", at::empty({2}), Init::zeros());
  }
};

class Tree final : public Module {
 public:
  explicit Tree(const Context& context) : Module(context) {
    first = add_child<Leaf>("first", context);
    register_parameter("scale", {1}, Init::ones(), ParameterRole::norm);
    add_child<Leaf>("block.0", context);
  }
  using Module::add_child;
  using Module::register_parameter;
  Leaf* first;
};

TEST(Module, VisitsOwnParametersThenChildrenInOrder) {
  Tree tree({});
  std::vector<std::string> parameters, buffers, modules;
  tree.each_parameter([&](const std::string& name, Parameter&) { parameters.push_back(name); });
  tree.each_buffer([&](const std::string& name, Buffer&) { buffers.push_back(name); });
  tree.each_module([&](const std::string& name, Module&) { modules.push_back(name); });
  EXPECT_THAT(parameters, ElementsAre("scale", "first.weight", "block.0.weight"));
  EXPECT_THAT(buffers, ElementsAre("first.mean", "block.0.mean"));
  EXPECT_THAT(modules, ElementsAre("", "first", "block.0"));
}

TEST(Module, GivesParametersTypeAndOrderOfContext) {
  const auto weight_of = [](const Context& context) {
    Tree tree(context);
    at::Tensor weight;
    tree.first->each_parameter([&](const std::string&, Parameter& parameter) { weight = parameter.value; });
    return weight;
  };
  const at::Tensor wide = weight_of({.policy = ops::policy_of(ops::Precision::fp64)});
  EXPECT_EQ(wide.scalar_type(), at::kDouble);
  EXPECT_TRUE(wide.requires_grad());
  const at::Tensor half = weight_of({.policy = ops::policy_of(ops::Precision::bf16), .channels_last = true});
  EXPECT_EQ(half.scalar_type(), at::kFloat);
  EXPECT_EQ(half.strides(), (at::IntArrayRef{3, 1, 3, 3}));
}

TEST(Module, SwitchesAllChildrenToEvaluation) {
  Tree tree({});
  tree.train(false);
  tree.each_module([](const std::string& name, Module& module) { EXPECT_FALSE(module.is_training()) << name; });
  tree.train();
  EXPECT_TRUE(tree.first->is_training());
}

TEST(Module, RefusesParameterWithoutValues) {
  Tree tree({});
  EXPECT_THROW(tree.register_parameter("table", {2}, Init::as_given(), ParameterRole::weight), std::logic_error);
}

TEST(Module, RefusesDuplicateChildrenAndDottedNames) {
  Tree tree({});
  EXPECT_THROW(tree.add_child<Leaf>("first", Context{}), std::logic_error);
  EXPECT_THROW(tree.register_parameter("a.b", {1}, Init::ones(), ParameterRole::weight), std::logic_error);
  EXPECT_THROW(tree.register_parameter("scale", {1}, Init::ones(), ParameterRole::weight), std::logic_error);
}

}  // namespace
}  // namespace gputrain::nn
