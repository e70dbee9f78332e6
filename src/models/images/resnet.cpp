#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/ops/activation.hpp"
#include "image_extent.hpp"

namespace gputrain::models {
namespace {

struct ResnetSpec {
  std::string stem = "imagenet";
  int64_t width = 64;
  bool zero_init_residual = false;
  std::optional<int64_t> num_classes;

  static void describe(config::Description<ResnetSpec>& d) {
    d.summary(
        "A residual network (He et al., arXiv:1512.03385) in torchvision's form: in bottlenecks the 3x3 "
        "convolution has the stride.");
    d.key("stem", &ResnetSpec::stem, "imagenet: 7x7 stride 2 and max-pooling; cifar: 3x3 for small images")
        .choices({"imagenet", "cifar"});
    d.key("width", &ResnetSpec::width,
          "channels of the first stage, doubled in each later stage; published weights: 64")
        .range(1, 1 << 16);
    d.key("zero_init_residual", &ResnetSpec::zero_init_residual,
          "start each block as the identity (Goyal et al., arXiv:1706.02677)");
    d.key("num_classes", &ResnetSpec::num_classes, "classes; null: the data's").range(1, 1e8);
  }
};

/// Blocks per stage. A block is a bottleneck (1x1, 3x3, 1x1) or a pair of 3x3.
struct ResnetPlan {
  std::array<int64_t, 4> blocks{};
  bool bottleneck = false;
};
constexpr ResnetPlan kResnet18{{2, 2, 2, 2}, false}, kResnet34{{3, 4, 6, 3}, false}, kResnet50{{3, 4, 6, 3}, true},
    kResnet101{{3, 4, 23, 3}, true}, kResnet152{{3, 8, 36, 3}, true};

nn::Conv2d::Options conv_options(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  const double fan_out = static_cast<double>(out * kernel * kernel);
  return {.in = in,
          .out = out,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .weight_init = nn::Init::normal(std::sqrt(2 / fan_out))};
}

/// Block relu(x + f(x)); f is two or three convolutions, each with its batch norm.
class ResnetBlock final : public nn::Module {
 public:
  struct Options {
    int64_t in = 0, width = 0, stride = 1;
    bool bottleneck = false, zero_init = false;

    int64_t out() const { return bottleneck ? 4 * width : width; }
    bool reshapes() const { return stride != 1 || in != out(); }
    double multiplications(double pixels_in, double pixels_out) const;
  };

  ResnetBlock(const nn::Context& context, const Options& options) : Module(context) {
    const auto& [in, width, stride, bottleneck, zero_init] = options;
    if (bottleneck) {
      add(1, conv_options(in, width, 1, 1));
      add(2, conv_options(width, width, 3, stride));
      add(3, conv_options(width, options.out(), 1, 1), zero_init);
    } else {
      add(1, conv_options(in, width, 3, stride));
      add(2, conv_options(width, width, 3, 1), zero_init);
    }
    if (!options.reshapes()) return;
    shortcut_.conv = add_child<nn::Conv2d>("downsample.0", context, conv_options(in, options.out(), 1, stride));
    shortcut_.norm =
        add_child<nn::BatchNorm2d>("downsample.1", context, nn::BatchNorm2d::Options{.channels = options.out()});
  }

  at::Tensor forward(const at::Tensor& x) const {
    return nn::ConvNorm::forward_relu(layers_, x, shortcut_.conv != nullptr ? shortcut_.forward(x) : x);
  }

 private:
  void add(int number, const nn::Conv2d::Options& options, bool zero_init = false) {
    const std::string digit = std::to_string(number);
    auto* conv = add_child<nn::Conv2d>("conv" + digit, context(), options);
    auto* norm = add_child<nn::BatchNorm2d>(
        "bn" + digit, context(),
        nn::BatchNorm2d::Options{.channels = options.out,
                                 .weight_init = zero_init ? nn::Init::zeros() : nn::Init::ones()});
    layers_.push_back({conv, norm});
  }

  std::vector<nn::ConvNorm> layers_;
  nn::ConvNorm shortcut_;
};

double ResnetBlock::Options::multiplications(double pixels_in, double pixels_out) const {
  const auto from = static_cast<double>(in), mid = static_cast<double>(width), to = static_cast<double>(out());
  const double shortcut = reshapes() ? from * to * pixels_out : 0;
  return shortcut + (bottleneck ? from * mid * pixels_in + (9 * mid * mid + mid * to) * pixels_out
                                : 9 * (from + to) * mid * pixels_out);
}

class Resnet : public Model {
 public:
  Resnet(const ResnetPlan& plan, const ResnetSpec& spec, const nn::Context& context, const DataFacts& facts)
      : Model(context), pools_stem_(spec.stem == "imagenet") {
    const ImageShape image = image_shape_of(facts);
    add_stem(image.channels, spec.width);
    ImageExtent extent{image.height, image.width};
    if (pools_stem_) extent.halve();
    multiplications_ = static_cast<double>(image.channels * spec.width * (pools_stem_ ? 49 : 9)) * extent.pixels();
    if (pools_stem_) extent.halve();
    int64_t in = spec.width;
    for (size_t stage = 0; stage < plan.blocks.size(); ++stage) {
      for (int64_t i = 0; i < plan.blocks[stage]; ++i) {
        const ResnetBlock::Options options{.in = in,
                                           .width = spec.width << stage,
                                           .stride = stage > 0 && i == 0 ? 2 : 1,
                                           .bottleneck = plan.bottleneck,
                                           .zero_init = spec.zero_init_residual};
        add_block("layer" + std::to_string(stage + 1) + "." + std::to_string(i), options, extent);
        in = options.out();
      }
    }
    const int64_t classes = classes_of(spec.num_classes, facts);
    fc_ = add_child<nn::Linear>("fc", context, nn::Linear::Options{.in = in, .out = classes});
    multiplications_ += static_cast<double>(in * classes);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = context().channels_last ? inputs.contiguous(at::MemoryFormat::ChannelsLast) : inputs;
    x = stem(x);
    for (const auto& [name, block] : blocks_) {
      x = run_block(x, *block);
    }
    const nn::UnitRange range(*fc_);
    return fc_->forward(ops::global_average_pool(x));
  }

  std::vector<Unit> units() override {
    std::vector<Unit> units;
    units.push_back({"stem", {stem_.conv, stem_.norm}});
    for (const auto& [name, block] : blocks_) units.push_back({name, {block}});
    units.push_back({"head", {fc_}});
    return units;
  }

  static Abilities abilities() { return {.announces_units = true, .recomputes_blocks = true}; }

  // Counts multiplications and additions per weight and output pixel, once forward and twice backward.
  double flops_per_sample() const override { return 6 * multiplications_; }

 private:
  at::Tensor stem(const at::Tensor& images) const {
    const nn::UnitRange range(*stem_.conv);
    const at::Tensor x = nn::ConvNorm::forward_relu({stem_}, images);
    return pools_stem_ ? ops::max_pool2d(x, 3, 2, 1) : x;
  }

  void add_stem(int64_t channels, int64_t width) {
    stem_.conv = add_child<nn::Conv2d>(
        "conv1", context(), pools_stem_ ? conv_options(channels, width, 7, 2) : conv_options(channels, width, 3, 1));
    stem_.norm = add_child<nn::BatchNorm2d>("bn1", context(), nn::BatchNorm2d::Options{.channels = width});
  }

  void add_block(const std::string& name, const ResnetBlock::Options& options, ImageExtent& extent) {
    const double pixels_in = extent.pixels();
    if (options.stride == 2) extent.halve();
    multiplications_ += options.multiplications(pixels_in, extent.pixels());
    blocks_.emplace_back(name, add_child<ResnetBlock>(name, context(), options));
  }

  bool pools_stem_;
  nn::ConvNorm stem_;
  std::vector<std::pair<std::string, ResnetBlock*>> blocks_;
  nn::Linear* fc_;
  double multiplications_ = 0;
};

template <const ResnetPlan& kPlan>
class ResnetOf final : public Resnet {
 public:
  ResnetOf(const ResnetSpec& spec, const nn::Context& context, const DataFacts& facts)
      : Resnet(kPlan, spec, context, facts) {}
};

const config::Registered<ResnetOf<kResnet18>, ResnetSpec> registered_18{catalog(), "resnet18", "ResNet of 18 layers"};
const config::Registered<ResnetOf<kResnet34>, ResnetSpec> registered_34{catalog(), "resnet34", "ResNet of 34 layers"};
const config::Registered<ResnetOf<kResnet50>, ResnetSpec> registered_50{catalog(), "resnet50",
                                                                        "ResNet v1.5 of 50 layers"};
const config::Registered<ResnetOf<kResnet101>, ResnetSpec> registered_101{catalog(), "resnet101",
                                                                          "ResNet v1.5 of 101 layers"};
const config::Registered<ResnetOf<kResnet152>, ResnetSpec> registered_152{catalog(), "resnet152",
                                                                          "ResNet v1.5 of 152 layers"};

}  // namespace
}  // namespace gputrain::models
