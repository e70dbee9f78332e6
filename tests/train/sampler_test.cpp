#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/train/sampler.hpp"

namespace gputrain::train {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int64_t kLength = 6;

/// Records the lengths of its input texts.
class Watched final : public models::Model {
 public:
  Watched() : Model(nn::Context{.policy = ops::policy_of(ops::Precision::fp64)}) { nn::initialize(model_, 1); }
  at::Tensor forward(const at::Tensor& inputs) override {
    lengths.insert(inputs.size(1));
    return model_.forward(inputs);
  }
  std::vector<models::Unit> units() override { return model_.units(); }
  std::set<int64_t> lengths;

 private:
  models::Gpt model_{
      {.n_layer = 2, .n_head = 2, .n_embd = 16}, context(), {.input_shape = {kLength}, .num_classes = 11}};
};

TEST(Sampler, WritesSameTextHoweverContextIsRead) {
  Watched model;
  const SampleSpec spec{.max_new_tokens = 9, .temperature = 1.5};
  const auto text = generate(model, {3, 1}, {.length = kLength}, {}, spec, 7);
  EXPECT_THAT(text, SizeIs(11));
  EXPECT_THAT(model.lengths, ElementsAre(2, 3, 4, 5, 6));
  model.lengths.clear();
  EXPECT_EQ(generate(model, {3, 1}, {.length = kLength, .has_one_length = true}, {}, spec, 7), text);
  EXPECT_THAT(model.lengths, ElementsAre(kLength));
  models::Gpt remembers({.n_layer = 2, .n_head = 2, .n_embd = 16}, model.context(),
                        {.input_shape = {kLength}, .num_classes = 11});
  nn::initialize(remembers, 1);
  EXPECT_EQ(generate(remembers, {3, 1}, {.length = kLength}, {}, spec, 7), text);
}

}  // namespace
}  // namespace gputrain::train
