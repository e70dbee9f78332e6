#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gputrain/models/spec_checks.hpp"
#include "inverted_residual.hpp"

namespace gputrain::models {
namespace {

constexpr double kMobilenetMomentum = 0.01, kMobilenetHeadStd = 0.01;

struct MobilenetSpec {
  double dropout = 0.2;
  std::optional<int64_t> num_classes = {};

  static void describe(config::Description<MobilenetSpec>& d) {
    d.summary("MobileNetV3 (Howard et al., arXiv:1905.02244). Parameters have torchvision's names.");
    d.key("dropout", &MobilenetSpec::dropout, "probability before the last layer").range(0, 0.999);
    d.key("num_classes", &MobilenetSpec::num_classes, "classes; null: the data's").range(1, kMostRows);
  }
};

/// Row of the paper's tables 1 and 2.
struct MobilenetRow {
  int64_t kernel, inner, out;
  bool squeezes;
  ops::Activation activation;
  int64_t stride;
};

constexpr auto kRelu = ops::Activation::relu, kHardswish = ops::Activation::hardswish;

constexpr std::array<MobilenetRow, 15> kMobilenetLargeRows{{{3, 16, 16, false, kRelu, 1},
                                                            {3, 64, 24, false, kRelu, 2},
                                                            {3, 72, 24, false, kRelu, 1},
                                                            {5, 72, 40, true, kRelu, 2},
                                                            {5, 120, 40, true, kRelu, 1},
                                                            {5, 120, 40, true, kRelu, 1},
                                                            {3, 240, 80, false, kHardswish, 2},
                                                            {3, 200, 80, false, kHardswish, 1},
                                                            {3, 184, 80, false, kHardswish, 1},
                                                            {3, 184, 80, false, kHardswish, 1},
                                                            {3, 480, 112, true, kHardswish, 1},
                                                            {3, 672, 112, true, kHardswish, 1},
                                                            {5, 672, 160, true, kHardswish, 2},
                                                            {5, 960, 160, true, kHardswish, 1},
                                                            {5, 960, 160, true, kHardswish, 1}}};

constexpr std::array<MobilenetRow, 11> kMobilenetSmallRows{{{3, 16, 16, true, kRelu, 2},
                                                            {3, 72, 24, false, kRelu, 2},
                                                            {3, 88, 24, false, kRelu, 1},
                                                            {5, 96, 40, true, kHardswish, 2},
                                                            {5, 240, 40, true, kHardswish, 1},
                                                            {5, 240, 40, true, kHardswish, 1},
                                                            {5, 120, 48, true, kHardswish, 1},
                                                            {5, 144, 48, true, kHardswish, 1},
                                                            {5, 288, 96, true, kHardswish, 2},
                                                            {5, 576, 96, true, kHardswish, 1},
                                                            {5, 576, 96, true, kHardswish, 1}}};

struct MobilenetSizes {
  std::span<const MobilenetRow> rows;
  int64_t hidden;  // channels between the classifier's layers
};
constexpr MobilenetSizes kMobilenetLarge{kMobilenetLargeRows, 1280}, kMobilenetSmall{kMobilenetSmallRows, 1024};

constexpr int64_t kMobilenetStem = 16;

/// Returns the nearest multiple of 8 that is not below nine tenths of the channels.
constexpr int64_t multiple_of_8(int64_t channels) {
  const int64_t nearest = std::max<int64_t>(8, (channels + 4) / 8 * 8);
  return 10 * nearest < 9 * channels ? nearest + 8 : nearest;
}

InvertedResidualNet::Plan mobilenet_plan(const MobilenetSizes& sizes) {
  InvertedResidualNet::Plan plan{.stem = kMobilenetStem,
                                 .last = 6 * sizes.rows.back().out,
                                 .activation = kHardswish,
                                 .momentum = kMobilenetMomentum};
  int64_t in = plan.stem, place = 1;
  for (const MobilenetRow& row : sizes.rows) {
    plan.blocks.emplace_back("features." + std::to_string(place++),
                             InvertedResidual::Options{.in = in,
                                                       .inner = row.inner,
                                                       .out = row.out,
                                                       .kernel = row.kernel,
                                                       .stride = row.stride,
                                                       .squeezed = row.squeezes ? multiple_of_8(row.inner / 4) : 0,
                                                       .gate = nn::SqueezeExcitation::Gate::hardsigmoid,
                                                       .activation = row.activation,
                                                       .momentum = kMobilenetMomentum});
    in = row.out;
  }
  plan.last_name = "features." + std::to_string(place);
  return plan;
}

class MobilenetV3 : public InvertedResidualNet {
 public:
  MobilenetV3(const MobilenetSizes& sizes, const MobilenetSpec& spec, const nn::Context& context,
              const DataFacts& facts)
      : InvertedResidualNet(mobilenet_plan(sizes), context, facts) {
    const int64_t in = 6 * sizes.rows.back().out, classes = classes_of(spec.num_classes, facts);
    hidden_ = add_dense("classifier.0", in, sizes.hidden);
    dropout_ = add_child<nn::Dropout>("classifier.2", context, spec.dropout);
    head_ = add_dense("classifier.3", sizes.hidden, classes);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor x = features(inputs);
    const nn::UnitRange range(*hidden_);
    return head_->forward(dropout_->forward(ops::activate(hidden_->forward(x), kHardswish)));
  }

  std::vector<Unit> units() override {
    std::vector<Unit> units = feature_units();
    units.push_back({"head", {hidden_, head_}});
    return units;
  }

 private:
  nn::Linear* add_dense(const std::string& name, int64_t in, int64_t out) {
    count_dense(in, out);
    const nn::Linear::Options options{.in = in, .out = out, .weight_init = nn::Init::normal(kMobilenetHeadStd)};
    return add_child<nn::Linear>(name, context(), options);
  }

  nn::Linear *hidden_, *head_;
  nn::Dropout* dropout_;
};

template <const MobilenetSizes& kSizes>
class MobilenetOf final : public MobilenetV3 {
 public:
  MobilenetOf(const MobilenetSpec& spec, const nn::Context& context, const DataFacts& facts)
      : MobilenetV3(kSizes, spec, context, facts) {}
};

const config::Registered<MobilenetOf<kMobilenetLarge>, MobilenetSpec> registered_mobilenet_large{
    catalog(), "mobilenet_v3_large", "MobileNetV3-Large"};
const config::Registered<MobilenetOf<kMobilenetSmall>, MobilenetSpec> registered_mobilenet_small{
    catalog(), "mobilenet_v3_small", "MobileNetV3-Small"};

}  // namespace
}  // namespace gputrain::models
