#include "convnext.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/addcmul.h>

#include "gputrain/core/error.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/transformer.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/activation.hpp"
#include "image_extent.hpp"

namespace gputrain::models {
namespace {

constexpr double kConvnextInitStd = 0.02, kConvnextNormEps = 1e-6;
constexpr int64_t kConvnextStemStride = 4, kConvnextKernel = 7, kConvnextGrowth = 4;

/// Options; the defaults are those of ConvNeXt-Tiny.
struct ConvnextSpec {
  std::vector<int64_t> blocks{3, 3, 9, 3}, channels{96, 192, 384, 768};
  double drop_path = 0.1, layer_scale = 1e-6;
  std::optional<int64_t> num_classes = {};
};

nn::Norm::Options convnext_norm(int64_t channels) { return {.channels = channels, .eps = kConvnextNormEps}; }

nn::Conv2d::Options convnext_conv(int64_t in, int64_t out, int64_t stride) {
  return {.in = in, .out = out, .kernel = stride, .stride = stride, .weight_init = nn::Init::normal(kConvnextInitStd)};
}

/// Turns [batch, channels, height, width] into [batch, height, width, channels], or back; no copy if channels-last.
at::Tensor channels_to_end(const at::Tensor& x) { return x.permute({0, 2, 3, 1}).contiguous(); }
at::Tensor channels_to_front(const nn::Context& context, const at::Tensor& x) {
  const auto order = context.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return x.permute({0, 3, 1, 2}).contiguous(order);
}

/// Layer norm over channels and a convolution that reduces each patch to one pixel; in the stem the other way round.
class ConvnextPatches final : public nn::Module {
 public:
  enum class Kind { stem, between_stages };

  ConvnextPatches(const nn::Context& context, Kind kind, int64_t in, int64_t out) : Module(context), kind_(kind) {
    const bool is_stem = kind == Kind::stem;
    norm_ = add_child<nn::Norm>(is_stem ? "1" : "0", context, convnext_norm(is_stem ? out : in));
    conv_ =
        add_child<nn::Conv2d>(is_stem ? "0" : "1", context, convnext_conv(in, out, is_stem ? kConvnextStemStride : 2));
  }

  at::Tensor forward(const at::Tensor& x) const {
    return kind_ == Kind::stem ? normed(conv_->forward(x)) : conv_->forward(normed(x));
  }

 private:
  at::Tensor normed(const at::Tensor& x) const {
    return channels_to_front(context(), norm_->forward(channels_to_end(x)));
  }

  Kind kind_;
  nn::Norm* norm_;
  nn::Conv2d* conv_;
};

/// Block x + scale f(x): f is a depthwise convolution, a layer norm and two dense layers over channels.
class ConvnextBlock final : public nn::Module {
 public:
  ConvnextBlock(const nn::Context& context, int64_t channels, double layer_scale, double drop_path) : Module(context) {
    // The scale has one factor for each channel, like the weights of norms.
    scale_ =
        register_parameter("layer_scale", {channels, 1, 1}, nn::Init::constant(layer_scale), nn::ParameterRole::norm);
    depthwise_ = add_child<nn::Conv2d>("block.0", context,
                                       nn::Conv2d::Options{.in = channels,
                                                           .out = channels,
                                                           .kernel = kConvnextKernel,
                                                           .padding = kConvnextKernel / 2,
                                                           .groups = channels,
                                                           .weight_init = nn::Init::normal(kConvnextInitStd)});
    norm_ = add_child<nn::Norm>("block.2", context, convnext_norm(channels));
    feed_forward_ =
        add_child<nn::FeedForward>("block", context,
                                   nn::FeedForward::Options{.naming = nn::Naming::convnext,
                                                            .channels = channels,
                                                            .inner = kConvnextGrowth * channels,
                                                            .activation = ops::Activation::gelu,
                                                            .weight_init = nn::Init::normal(kConvnextInitStd),
                                                            .output_init = nn::Init::normal(kConvnextInitStd)});
    drop_path_ = add_child<nn::DropPath>("stochastic_depth", context, drop_path);
  }

  /// Computes the sum in the master type: f starts a million times smaller than x, and 16 bits would round it away.
  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor pixels = norm_->forward(channels_to_end(depthwise_->forward(x)));
    const at::Tensor added = drop_path_->forward(channels_to_front(context(), feed_forward_->forward(pixels)));
    return at::addcmul(x, added, scale_);
  }

 private:
  at::Tensor scale_;
  nn::Conv2d* depthwise_;
  nn::Norm* norm_;
  nn::FeedForward* feed_forward_;
  nn::DropPath* drop_path_;
};

void check_image(const ConvnextSpec& spec, const ImageShape& image) {
  const int64_t least = kConvnextStemStride << (spec.channels.size() - 1);
  if (std::min(image.height, image.width) >= least) return;
  throw Error(ExitCode::usage,
              {.what = "an image of " + std::to_string(image.height) + " x " + std::to_string(image.width) +
                       " has no pixel left after " + std::to_string(spec.channels.size()) + " stages",
               .where = "model.config.channels",
               .hint = "use fewer stages, or data.image.size: " + std::to_string(least)});
}

/// ConvNeXt whose parameters are named as in torchvision.
class Convnext final : public Model {
 public:
  Convnext(const ConvnextSpec& spec, const nn::Context& context, const DataFacts& facts)
      : Model(context), sizes_{spec.blocks, spec.channels} {
    const ImageShape image = image_shape_of(facts);
    check_image(spec, image);
    const auto& channels = spec.channels;
    ImageExtent extent{image.height / kConvnextStemStride, image.width / kConvnextStemStride};
    stem_ = add_child<ConvnextPatches>("features.0", context, ConvnextPatches::Kind::stem, image.channels, channels[0]);
    multiplications_ =
        extent.pixels() * static_cast<double>(image.channels * channels[0]) * kConvnextStemStride * kConvnextStemStride;
    for (size_t i = 0; i < channels.size(); ++i) {
      if (i > 0) {
        extent = {extent.height / 2, extent.width / 2};
        multiplications_ += extent.pixels() * static_cast<double>(4 * channels[i - 1] * channels[i]);
      }
      add_stage(spec, i, extent.pixels());
    }
    const int64_t classes = classes_of(spec.num_classes, facts);
    norm_ = add_child<nn::Norm>("classifier.0", context, convnext_norm(channels.back()));
    head_ = add_child<nn::Linear>(
        "classifier.2", context,
        nn::Linear::Options{.in = channels.back(), .out = classes, .weight_init = nn::Init::normal(kConvnextInitStd)});
    multiplications_ += static_cast<double>(channels.back() * classes);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = context().channels_last ? inputs.contiguous(at::MemoryFormat::ChannelsLast) : inputs;
    {
      const nn::UnitRange range(*stem_);
      x = stem_->forward(x);
    }
    for (const Stage& stage : stages_) {
      if (stage.shrink != nullptr) x = run_block(x, *stage.shrink);
      for (const ConvnextBlock* block : stage.blocks) x = run_block(x, *block);
    }
    const nn::UnitRange range(*norm_);
    return head_->forward(norm_->forward(ops::global_average_pool(x)));
  }

  const ConvnextStages& sizes() const noexcept { return sizes_; }
  bool is_for_timm() const noexcept { return is_for_timm_; }
  void write_for_timm(bool is_so) noexcept { is_for_timm_ = is_so; }

  std::vector<Unit> units() override {
    std::vector<Unit> units{{"stem", {stem_}}};
    for (size_t i = 0; i < stages_.size(); ++i) {
      const Stage& stage = stages_[i];
      if (stage.shrink != nullptr) units.push_back({shrink_name(i), {stage.shrink}});
      for (size_t block = 0; block < stage.blocks.size(); ++block)
        units.push_back({block_name(i, block), {stage.blocks[block]}});
    }
    units.push_back({"head", {norm_, head_}});
    return units;
  }

  static Abilities abilities() {
    return {.announces_units = true, .recomputes_blocks = true, .recomputes_selectively = true};
  }

  // Counts multiplications and additions per weight and output pixel, once forward and twice backward.
  double flops_per_sample() const override { return 6 * multiplications_; }

 private:
  struct Stage {
    ConvnextPatches* shrink = nullptr;  // module that halves the image before the blocks; null in the first stage
    std::vector<ConvnextBlock*> blocks = {};
  };

  static std::string shrink_name(size_t stage) { return "features." + std::to_string(2 * stage); }
  static std::string block_name(size_t stage, size_t block) {
    return "features." + std::to_string(2 * stage + 1) + "." + std::to_string(block);
  }

  void add_stage(const ConvnextSpec& spec, size_t i, double pixels) {
    const int64_t channels = spec.channels[i], blocks = spec.blocks[i];
    Stage stage;
    if (i > 0) {
      stage.shrink = add_child<ConvnextPatches>(shrink_name(i), context(), ConvnextPatches::Kind::between_stages,
                                                spec.channels[i - 1], channels);
    }
    int64_t all = 0;
    for (const int64_t count : spec.blocks) all += count;
    for (int64_t block = 0; block < blocks; ++block, ++blocks_before_) {
      const double share = all > 1 ? static_cast<double>(blocks_before_) / static_cast<double>(all - 1) : 0;
      stage.blocks.push_back(add_child<ConvnextBlock>(block_name(i, static_cast<size_t>(block)), context(), channels,
                                                      spec.layer_scale, share * spec.drop_path));
    }
    const int64_t weights = channels * kConvnextKernel * kConvnextKernel + 2 * kConvnextGrowth * channels * channels;
    multiplications_ += pixels * static_cast<double>(blocks) * static_cast<double>(weights);
    stages_.push_back(std::move(stage));
  }

  ConvnextStages sizes_;
  bool is_for_timm_ = false;
  ConvnextPatches* stem_;
  std::vector<Stage> stages_;
  nn::Norm* norm_;
  nn::Linear* head_;
  int64_t blocks_before_ = 0;
  double multiplications_ = 0;
};

template <class Spec>
void describe_convnext(config::Description<Spec>& d) {
  d.summary(
      "ConvNeXt (Liu et al., arXiv:2201.03545). Parameters have torchvision's names; weights are "
      "written under those of model.pretrained.");
  d.key("blocks", &ConvnextSpec::blocks, "blocks of each stage").range(1, kMostLayers).aliases({"depths"});
  d.key("channels", &ConvnextSpec::channels, "channels of each stage").range(1, kMostChannels).aliases({"dims"});
  d.key("drop_path", &ConvnextSpec::drop_path,
        "stochastic depth: probability that a sample passes by the last block, growing from 0 in the first")
      .range(0, 0.999)
      .aliases({"stochastic_depth_prob", "stochastic_depth", "drop_path_rate"});
  d.key("layer_scale", &ConvnextSpec::layer_scale, "first value of the factors of what blocks add").range(0, 1e3);
  d.key("num_classes", &ConvnextSpec::num_classes, "classes; null: the data's").range(1, kMostRows);
  d.check([](const Spec& spec, config::SpecIssues& issues) {
    if (spec.blocks.empty() || spec.blocks.size() != spec.channels.size()) {
      issues.add("blocks", "blocks and channels must name the same stages, at least one",
                 "blocks: [3, 3, 9, 3], channels: [96, 192, 384, 768]");
    } else if (spec.channels.size() > 16) {
      issues.add("channels", "an image cannot be halved so often", "at most 16 stages");
    }
  });
}

/// Sizes that are published under a name, and the stochastic depth of their training.
struct ConvnextSizes {
  std::array<int64_t, 4> blocks, channels;
  double drop_path;
};
constexpr ConvnextSizes kConvnextTiny{{3, 3, 9, 3}, {96, 192, 384, 768}, 0.1},
    kConvnextSmall{{3, 3, 27, 3}, {96, 192, 384, 768}, 0.4}, kConvnextBase{{3, 3, 27, 3}, {128, 256, 512, 1024}, 0.5},
    kConvnextLarge{{3, 3, 27, 3}, {192, 384, 768, 1536}, 0.5};

template <const ConvnextSizes& kSizes>
struct ConvnextSpecOf : ConvnextSpec {
  ConvnextSpecOf() {
    blocks.assign(kSizes.blocks.begin(), kSizes.blocks.end());
    channels.assign(kSizes.channels.begin(), kSizes.channels.end());
    drop_path = kSizes.drop_path;
  }
  static void describe(config::Description<ConvnextSpecOf>& d) { describe_convnext(d); }
};

const config::Registered<Convnext, ConvnextSpecOf<kConvnextTiny>> registered_convnext_any{catalog(), "convnext",
                                                                                          "ConvNeXt of any size"};
const config::Registered<Convnext, ConvnextSpecOf<kConvnextTiny>> registered_convnext_tiny{catalog(), "convnext_tiny",
                                                                                           "ConvNeXt-Tiny"};
const config::Registered<Convnext, ConvnextSpecOf<kConvnextSmall>> registered_convnext_small{
    catalog(), "convnext_small", "ConvNeXt-Small"};
const config::Registered<Convnext, ConvnextSpecOf<kConvnextBase>> registered_convnext_base{catalog(), "convnext_base",
                                                                                           "ConvNeXt-Base"};
const config::Registered<Convnext, ConvnextSpecOf<kConvnextLarge>> registered_convnext_large{
    catalog(), "convnext_large", "ConvNeXt-Large"};

}  // namespace

const ConvnextStages& stages_of(const Model& convnext) { return dynamic_cast<const Convnext&>(convnext).sizes(); }

bool is_convnext(const Model& model) { return dynamic_cast<const Convnext*>(&model) != nullptr; }

bool is_written_for_timm(const Model& convnext) { return dynamic_cast<const Convnext&>(convnext).is_for_timm(); }

void write_for_timm(Model& convnext, bool is_so) { dynamic_cast<Convnext&>(convnext).write_for_timm(is_so); }

}  // namespace gputrain::models
