#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gputrain/models/spec_checks.hpp"
#include "inverted_residual.hpp"

namespace gputrain::models {
namespace {

struct EfficientnetSpec {
  double dropout = 0.2, drop_path = 0.2;
  std::optional<int64_t> num_classes = {};
};

/// Row of the paper's table 4: equal blocks, the first of them with the stride.
struct EfficientnetStage {
  bool is_fused;
  int64_t growth, stride, out, blocks;
};

constexpr std::array<EfficientnetStage, 6> kEfficientnetSmallStages{{{true, 1, 1, 24, 2},
                                                                     {true, 4, 2, 48, 4},
                                                                     {true, 4, 2, 64, 4},
                                                                     {false, 4, 2, 128, 6},
                                                                     {false, 6, 1, 160, 9},
                                                                     {false, 6, 2, 256, 15}}};

constexpr std::array<EfficientnetStage, 7> kEfficientnetMediumStages{{{true, 1, 1, 24, 3},
                                                                      {true, 4, 2, 48, 5},
                                                                      {true, 4, 2, 80, 5},
                                                                      {false, 4, 2, 160, 7},
                                                                      {false, 6, 1, 176, 14},
                                                                      {false, 6, 2, 304, 18},
                                                                      {false, 6, 1, 512, 5}}};

constexpr std::array<EfficientnetStage, 7> kEfficientnetLargeStages{{{true, 1, 1, 32, 4},
                                                                     {true, 4, 2, 64, 7},
                                                                     {true, 4, 2, 96, 7},
                                                                     {false, 4, 2, 192, 10},
                                                                     {false, 6, 1, 224, 19},
                                                                     {false, 6, 2, 384, 25},
                                                                     {false, 6, 1, 640, 7}}};

/// Size that is published under a name, and the dropout of its training.
struct EfficientnetSizes {
  std::span<const EfficientnetStage> stages;
  double dropout;
};
constexpr EfficientnetSizes kEfficientnetSmall{kEfficientnetSmallStages, 0.2},
    kEfficientnetMedium{kEfficientnetMediumStages, 0.3}, kEfficientnetLarge{kEfficientnetLargeStages, 0.4};

constexpr int64_t kEfficientnetLast = 1280;  // channels
constexpr auto kSilu = ops::Activation::silu;

InvertedResidual::Options efficientnet_block(const EfficientnetStage& stage, int64_t in, bool is_first) {
  return {.in = in,
          .inner = stage.growth * in,
          .out = stage.out,
          .stride = is_first ? stage.stride : 1,
          .is_fused = stage.is_fused,
          .squeezed = stage.is_fused ? 0 : std::max<int64_t>(1, in / 4),
          .activation = kSilu,
          .squeezed_activation = kSilu};
}

InvertedResidualNet::Plan efficientnet_plan(const EfficientnetSizes& sizes, const EfficientnetSpec& spec) {
  InvertedResidualNet::Plan plan{.stem = sizes.stages.front().out, .last = kEfficientnetLast, .activation = kSilu};
  int64_t in = plan.stem, place = 1;
  for (const EfficientnetStage& stage : sizes.stages) {
    const std::string prefix = "features." + std::to_string(place++) + ".";
    for (int64_t i = 0; i < stage.blocks; ++i, in = stage.out)
      plan.blocks.emplace_back(prefix + std::to_string(i), efficientnet_block(stage, in, i == 0));
  }
  plan.last_name = "features." + std::to_string(place);
  const auto all = static_cast<double>(plan.blocks.size());
  for (size_t i = 0; i < plan.blocks.size(); ++i)
    plan.blocks[i].second.drop_path = spec.drop_path * static_cast<double>(i) / all;
  return plan;
}

class EfficientnetV2 : public InvertedResidualNet {
 public:
  EfficientnetV2(const EfficientnetSizes& sizes, const EfficientnetSpec& spec, const nn::Context& context,
                 const DataFacts& facts)
      : InvertedResidualNet(efficientnet_plan(sizes, spec), context, facts) {
    const int64_t classes = classes_of(spec.num_classes, facts);
    dropout_ = add_child<nn::Dropout>("classifier.0", context, spec.dropout);
    head_ = add_child<nn::Linear>(
        "classifier.1", context,
        nn::Linear::Options{.in = kEfficientnetLast,
                            .out = classes,
                            .weight_init = nn::Init::uniform(1 / std::sqrt(static_cast<double>(classes)))});
    count_dense(kEfficientnetLast, classes);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor x = features(inputs);
    const nn::UnitRange range(*head_);
    return head_->forward(dropout_->forward(x));
  }

  std::vector<Unit> units() override {
    std::vector<Unit> units = feature_units();
    units.push_back({"head", {head_}});
    return units;
  }

 private:
  nn::Dropout* dropout_;
  nn::Linear* head_;
};

template <const EfficientnetSizes& kSizes>
struct EfficientnetSpecOf : EfficientnetSpec {
  EfficientnetSpecOf() { dropout = kSizes.dropout; }
  static void describe(config::Description<EfficientnetSpecOf>& d) {
    d.summary("EfficientNetV2 (Tan and Le, arXiv:2104.00298). Parameters have torchvision's names.");
    d.key("dropout", &EfficientnetSpec::dropout, "probability before the last layer").range(0, 0.999);
    d.key("drop_path", &EfficientnetSpec::drop_path,
          "stochastic depth: probability that a sample passes by a block, growing from 0 in the first towards this")
        .range(0, 0.999)
        .aliases({"stochastic_depth_prob", "stochastic_depth", "drop_path_rate"});
    d.key("num_classes", &EfficientnetSpec::num_classes, "classes; null: the data's").range(1, kMostRows);
  }
};

template <const EfficientnetSizes& kSizes>
class EfficientnetOf final : public EfficientnetV2 {
 public:
  EfficientnetOf(const EfficientnetSpecOf<kSizes>& spec, const nn::Context& context, const DataFacts& facts)
      : EfficientnetV2(kSizes, spec, context, facts) {}
};

const config::Registered<EfficientnetOf<kEfficientnetSmall>, EfficientnetSpecOf<kEfficientnetSmall>>
    registered_efficientnet_s{catalog(), "efficientnet_v2_s", "EfficientNetV2-S"};
const config::Registered<EfficientnetOf<kEfficientnetMedium>, EfficientnetSpecOf<kEfficientnetMedium>>
    registered_efficientnet_m{catalog(), "efficientnet_v2_m", "EfficientNetV2-M"};
const config::Registered<EfficientnetOf<kEfficientnetLarge>, EfficientnetSpecOf<kEfficientnetLarge>>
    registered_efficientnet_l{catalog(), "efficientnet_v2_l", "EfficientNetV2-L"};

}  // namespace
}  // namespace gputrain::models
