// The loss of mixed images against the cross entropy with their soft targets.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gputrain/data/mixing.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {
namespace {

constexpr int64_t kPixels = 12, kClasses = 7;

/// Classifies by one dense layer, in fp64.
class OneLayer final : public models::Model {
 public:
  OneLayer() : Model(nn::Context{.policy = {.master = at::kDouble, .compute = at::kDouble}}) {
    layer_ = add_child<nn::Linear>("layer", context(), nn::Linear::Options{.in = kPixels, .out = kClasses});
    nn::initialize(*this, 3);
  }
  at::Tensor forward(const at::Tensor& images) override { return layer_->forward(images.flatten(1)); }
  std::vector<models::Unit> units() override { return {{"all", {this}}}; }
  const at::Tensor& weight() const { return layer_->weight(); }

 private:
  nn::Linear* layer_;
};

TEST(MixedImages, HaveTheLossOfTheirSoftTargets) {
  const std::vector<int64_t> targets{0, 3, kIgnoreIndex, 6, 5}, others{5, 6, kIgnoreIndex, kIgnoreIndex, 0};
  const double part = 0.3, smoothing = 0.1;
  const at::Tensor images = at::sin(at::arange(5 * kPixels, at::kDouble)).view({5, 3, 2, 2});
  const Batch batch{.fields = {{kImage, images},
                               {kTarget, at::tensor(targets)},
                               {data::kMixedTarget, at::tensor(others)},
                               {data::kMixedPart, at::full({5}, part, at::kDouble)}},
                    .samples = 5,
                    .samples_on_all_ranks = 5,
                    .weight = 4};
  OneLayer model;
  const auto task = catalog().make(
      {}, {.layout = data::SampleLayout::images(2, 2, 3, kClasses), .model = {}, .label_smoothing = smoothing});
  const at::Tensor weight = at::full({}, 0.25, at::kDouble);
  const ops::Loss loss = task->loss(model, batch, weight);
  loss.weighted.backward();
  const at::Tensor found = model.weight().grad().clone();

  at::Tensor wanted = at::zeros({5, kClasses}, at::kDouble);
  for (int64_t row = 0; row < 5; ++row)
    for (const auto& [target, share] :
         {std::pair{targets[static_cast<size_t>(row)], part}, {others[static_cast<size_t>(row)], 1 - part}}) {
      if (target == kIgnoreIndex) continue;
      wanted[row].add_(share * smoothing / kClasses);
      wanted[row][target].add_(share * (1 - smoothing));
    }
  model.weight().mutable_grad().reset();
  const at::Tensor expected = -(wanted * at::log_softmax(model.forward(images), 1)).sum();
  (expected * weight).backward();
  EXPECT_NEAR(loss.sum.item<double>(), expected.item<double>(), 1e-12);
  EXPECT_NEAR(loss.weighted.item<double>(), 0.25 * expected.item<double>(), 1e-12);
  EXPECT_LT((found - model.weight().grad()).abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace gputrain::tasks
