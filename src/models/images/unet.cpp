#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include "gputrain/core/error.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/ops/activation.hpp"
#include "image_extent.hpp"

namespace gputrain::models {
namespace {

struct UnetSpec {
  std::vector<int64_t> channels{32, 64, 128, 256};
  std::string upsampling = "transposed";
  std::optional<int64_t> num_classes;

  static void describe(config::Description<UnetSpec>& d) {
    d.summary(
        "A U-Net (Ronneberger et al., arXiv:1505.04597), which gives each pixel a class. Unlike in the paper, "
        "convolutions are padded, so that the output is as large as the input, and each has a batch norm. Images may "
        "have any size.");
    d.key("channels", &UnetSpec::channels,
          "channels of each level; each level but the first halves the image. The paper's: [64, 128, 256, 512, 1024]")
        .range(1, kMostChannels);
    d.key("upsampling", &UnetSpec::upsampling,
          "how a level becomes as large as the one above: a transposed convolution, or bilinear interpolation, whose "
          "gradient is not deterministic on a GPU")
        .choices({"transposed", "bilinear"});
    d.key("num_classes", &UnetSpec::num_classes, "classes; null: the data's").range(1, kMostRows);
    d.check([](const UnetSpec& spec, config::SpecIssues& issues) {
      if (spec.channels.empty()) issues.add("channels", "a U-Net has at least one level", "channels: [32, 64, 128]");
    });
  }
};

nn::Conv2d::Options unet_conv(int64_t in, int64_t out) {
  const double fan_in = static_cast<double>(9 * in);
  return {.in = in,
          .out = out,
          .kernel = 3,
          .padding = 1,
          .bias = false,
          .weight_init = nn::Init::normal(std::sqrt(2 / fan_in))};
}

/// Halves height and width of a ReLU's output: the zeros that pad odd sizes are never the only maximum.
at::Tensor unet_halved(const at::Tensor& x) {
  const int64_t down = x.size(2) % 2, across = x.size(3) % 2;
  return ops::max_pool2d(down + across > 0 ? at::constant_pad_nd(x, {0, across, 0, down}) : x, 2, 2);
}

/// Pair of 3x3 convolutions, each with batch norm and ReLU.
class UnetConvs : public nn::Module {
 public:
  UnetConvs(const nn::Context& context, int64_t in, int64_t out) : Module(context) {
    for (const std::string number : {"1", "2"}) {
      auto* conv = add_child<nn::Conv2d>("conv" + number, context, unet_conv(number == "1" ? in : out, out));
      auto* norm = add_child<nn::BatchNorm2d>("norm" + number, context, nn::BatchNorm2d::Options{.channels = out});
      layers_.push_back({conv, norm});
    }
  }

 protected:
  at::Tensor convolved(const at::Tensor& x) const { return nn::ConvNorm::forward_relu(layers_, x); }

 private:
  std::vector<nn::ConvNorm> layers_;
};

/// Level on the way down.
class UnetDown final : public UnetConvs {
 public:
  UnetDown(const nn::Context& context, int64_t in, int64_t out, bool halves)
      : UnetConvs(context, in, out), halves_(halves) {}

  at::Tensor forward(const at::Tensor& x) const { return convolved(halves_ ? unet_halved(x) : x); }

 private:
  bool halves_;
};

/// Level on the way up: reads the level below, and the result of the level on the way down.
class UnetUp final : public UnetConvs {
 public:
  UnetUp(const nn::Context& context, int64_t below, int64_t out, bool is_bilinear) : UnetConvs(context, 2 * out, out) {
    if (is_bilinear) {
      projection_ = add_child<nn::Conv2d>("up", context,
                                          nn::Conv2d::Options{.in = below, .out = out, .kernel = 1, .bias = false});
    } else {
      transposed_ =
          add_child<nn::ConvTranspose2d>("up", context, nn::ConvTranspose2d::Options{.in = below, .out = out});
    }
  }

  at::Tensor forward(const at::Tensor& below, const at::Tensor& level) const {
    at::Tensor larger = transposed_ != nullptr ? transposed_->forward(below) : interpolated(below);
    for (const int64_t dim : {2, 3}) {
      if (larger.size(dim) > level.size(dim)) larger = larger.narrow(dim, 0, level.size(dim));
    }
    return convolved(at::cat({level, larger}, 1));
  }

 private:
  /// Interpolates after the projection, which then runs on fewer pixels: the two commute.
  at::Tensor interpolated(const at::Tensor& below) const {
    const at::Tensor x = projection_->forward(below);
    return at::upsample_bilinear2d(x, {2 * x.size(2), 2 * x.size(3)}, /*align_corners=*/false);
  }

  nn::ConvTranspose2d* transposed_ = nullptr;
  nn::Conv2d* projection_ = nullptr;
};

class Unet final : public Model {
 public:
  Unet(const UnetSpec& spec, const nn::Context& context, const DataFacts& facts) : Model(context) {
    const bool is_bilinear = spec.upsampling == "bilinear";
    if (is_bilinear) check_determinism(context);
    const ImageShape image = image_shape_of(facts);
    const auto& channels = spec.channels;
    std::vector<ImageExtent> extents(channels.size(), {image.height, image.width});
    for (size_t level = 0; level < channels.size(); ++level) {
      const int64_t in = level == 0 ? image.channels : channels[level - 1];
      if (level > 0) (extents[level] = extents[level - 1]).halve();
      down_.push_back(
          add_child<UnetDown>("down." + std::to_string(level), context, in, channels[level], /*halves=*/level > 0));
      count_convs(in, channels[level], extents[level]);
    }
    for (size_t level = channels.size() - 1; level-- > 0;) {
      const int64_t below = channels[level + 1], out = channels[level];
      up_.push_back(add_child<UnetUp>("up." + std::to_string(level), context, below, out, is_bilinear));
      count_convs(2 * out, out, extents[level]);
      const double pixels = (is_bilinear ? 1 : 4) * extents[level + 1].pixels();
      multiplications_ += static_cast<double>(below * out) * pixels;
    }
    const int64_t classes = classes_of(spec.num_classes, facts);
    head_ = add_child<nn::Conv2d>("head", context, nn::Conv2d::Options{.in = channels[0], .out = classes, .kernel = 1});
    multiplications_ += static_cast<double>(channels[0] * classes) * extents[0].pixels();
  }

  static InputSpec reads(const UnetSpec&) { return {.field = kImage, .target = Target::pixels}; }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = context().channels_last ? inputs.contiguous(at::MemoryFormat::ChannelsLast) : inputs;
    std::vector<at::Tensor> levels;
    for (const UnetDown* down : down_) {
      if (!levels.empty()) x = levels.back();
      levels.push_back(run_block(x, *down));
    }
    x = levels.back();
    for (const UnetUp* up : up_) {
      levels.pop_back();
      x = run_up(*up, x, levels.back());
    }
    const nn::UnitRange range(*head_);
    return head_->forward(x).permute({0, 2, 3, 1});
  }

  std::vector<Unit> units() override {
    std::vector<Unit> units;
    for (size_t i = 0; i < down_.size(); ++i) units.push_back({"down." + std::to_string(i), {down_[i]}});
    for (size_t i = 0; i < up_.size(); ++i) units.push_back({"up." + std::to_string(up_.size() - 1 - i), {up_[i]}});
    units.push_back({"head", {head_}});
    return units;
  }

  static Abilities abilities() { return {.announces_units = true, .recomputes_blocks = true}; }
  double flops_per_sample() const override { return 6 * multiplications_; }

 private:
  /// Refuses the interpolation on a GPU if the job must be deterministic: ATen's gradient adds in any order there.
  static void check_determinism(const nn::Context& context) {
    if (!context.device.is_cuda() || !at::globalContext().deterministicAlgorithms()) return;
    throw Error(ExitCode::usage, {.what = "bilinear upsampling is not deterministic on a GPU, as the job demands",
                                  .where = "model.config.upsampling",
                                  .hint = "upsampling: transposed"});
  }

  void count_convs(int64_t in, int64_t out, const ImageExtent& extent) {
    multiplications_ += static_cast<double>(9 * (in + out) * out) * extent.pixels();
  }

  at::Tensor run_up(const UnetUp& up, const at::Tensor& below, const at::Tensor& level) const {
    const nn::UnitRange range(up);
    return nn::recomputed_block(
        context().recompute, {below, level},
        [&up](const std::vector<at::Tensor>& t) { return std::vector{up.forward(t[0], t[1])}; },
        [&up] { return up.is_trained(); })[0];
  }

  std::vector<UnetDown*> down_;
  std::vector<UnetUp*> up_;  // the lowest level first
  nn::Conv2d* head_;
  double multiplications_ = 0;
};

const config::Registered<Unet, UnetSpec> registered_unet{catalog(), "unet", "U-Net: a class for each pixel"};

}  // namespace
}  // namespace gputrain::models
