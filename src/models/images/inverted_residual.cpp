#include "inverted_residual.hpp"

#include <cmath>

#include <ATen/ops/add.h>

#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "image_extent.hpp"

namespace gputrain::models {
namespace {

constexpr double kBatchNormEps = 1e-3;

}  // namespace

double ConvNormActivation::Options::multiplications(double pixels_out) const {
  return static_cast<double>(in / groups * out * kernel * kernel) * pixels_out;
}

ConvNormActivation::ConvNormActivation(const nn::Context& context, const Options& options)
    : Module(context), activation_(options.activation) {
  const double fan_out = static_cast<double>(options.out * options.kernel * options.kernel);
  layers_.conv = add_child<nn::Conv2d>("0", context,
                                       nn::Conv2d::Options{.in = options.in,
                                                           .out = options.out,
                                                           .kernel = options.kernel,
                                                           .stride = options.stride,
                                                           .padding = options.kernel / 2,
                                                           .groups = options.groups,
                                                           .bias = false,
                                                           .weight_init = nn::Init::normal(std::sqrt(2 / fan_out))});
  layers_.norm = add_child<nn::BatchNorm2d>(
      "1", context,
      nn::BatchNorm2d::Options{.channels = options.out, .eps = kBatchNormEps, .momentum = options.momentum});
}

at::Tensor ConvNormActivation::forward(const at::Tensor& x) const {
  if (activation_ == ops::Activation::relu) return nn::ConvNorm::forward_relu({layers_}, x);
  at::Tensor y = layers_.forward(x);
  return activation_ ? ops::activate(std::move(y), *activation_) : y;
}

std::vector<ConvNormActivation::Options> InvertedResidual::Options::widening() const {
  if (is_fused) {
    return {{.in = in,
             .out = inner == in ? out : inner,
             .kernel = kernel,
             .stride = stride,
             .activation = activation,
             .momentum = momentum}};
  }
  std::vector<ConvNormActivation::Options> layers;
  if (inner != in) layers.push_back({.in = in, .out = inner, .activation = activation, .momentum = momentum});
  layers.push_back({.in = inner,
                    .out = inner,
                    .kernel = kernel,
                    .stride = stride,
                    .groups = inner,
                    .activation = activation,
                    .momentum = momentum});
  return layers;
}

std::optional<ConvNormActivation::Options> InvertedResidual::Options::narrowing() const {
  if (is_fused && inner == in) return std::nullopt;
  return ConvNormActivation::Options{.in = inner, .out = out, .momentum = momentum};
}

double InvertedResidual::Options::multiplications(double pixels_in, double pixels_out) const {
  double count = static_cast<double>(2 * inner * squeezed);
  for (const auto& layer : widening()) count += layer.multiplications(layer.kernel == 1 ? pixels_in : pixels_out);
  if (const auto layer = narrowing()) count += layer->multiplications(pixels_out);
  return count;
}

InvertedResidual::InvertedResidual(const nn::Context& context, const Options& options)
    : Module(context), keeps_shape_(options.keeps_shape()) {
  int place = 0;
  const auto name = [&place] { return "block." + std::to_string(place++); };
  for (const auto& layer : options.widening())
    widening_.push_back(add_child<ConvNormActivation>(name(), context, layer));
  if (options.squeezed > 0) {
    squeeze_ =
        add_child<nn::SqueezeExcitation>(name(), context,
                                         nn::SqueezeExcitation::Options{.channels = options.inner,
                                                                        .squeezed = options.squeezed,
                                                                        .activation = options.squeezed_activation,
                                                                        .gate = options.gate});
  }
  if (const auto layer = options.narrowing()) narrowing_ = add_child<ConvNormActivation>(name(), context, *layer);
  drop_path_ = add_child<nn::DropPath>("stochastic_depth", context, options.drop_path);
}

at::Tensor InvertedResidual::forward(const at::Tensor& x) const {
  at::Tensor y = x;
  for (const ConvNormActivation* layer : widening_) y = layer->forward(y);
  if (squeeze_ != nullptr) y = squeeze_->forward(y);
  if (narrowing_ != nullptr) y = narrowing_->forward(y);
  return keeps_shape_ ? at::add(drop_path_->forward(y), x) : y;
}

InvertedResidualNet::InvertedResidualNet(const Plan& plan, const nn::Context& context, const DataFacts& facts)
    : Model(context), last_name_(plan.last_name) {
  const ImageShape image = image_shape_of(facts);
  ImageExtent extent{image.height, image.width};
  const auto add_layer = [&](const std::string& name, const ConvNormActivation::Options& options) {
    multiplications_ += options.multiplications(extent.pixels());
    return add_child<ConvNormActivation>(name, context, options);
  };
  extent.halve();
  stem_ = add_layer("features.0", {.in = image.channels,
                                   .out = plan.stem,
                                   .kernel = 3,
                                   .stride = 2,
                                   .activation = plan.activation,
                                   .momentum = plan.momentum});
  for (const auto& [name, options] : plan.blocks) {
    const double pixels_in = extent.pixels();
    if (options.stride == 2) extent.halve();
    multiplications_ += options.multiplications(pixels_in, extent.pixels());
    blocks_.emplace_back(name, add_child<InvertedResidual>(name, context, options));
  }
  last_ = add_layer(plan.last_name, {.in = plan.blocks.back().second.out,
                                     .out = plan.last,
                                     .activation = plan.activation,
                                     .momentum = plan.momentum});
}

at::Tensor InvertedResidualNet::features(const at::Tensor& images) const {
  at::Tensor x = context().channels_last ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
  {
    const nn::UnitRange range(*stem_);
    x = stem_->forward(x);
  }
  for (const auto& [name, block] : blocks_) x = run_block(x, *block);
  const nn::UnitRange range(*last_);
  return ops::global_average_pool(last_->forward(x));
}

std::vector<Unit> InvertedResidualNet::feature_units() const {
  std::vector<Unit> units{{"stem", {stem_}}};
  for (const auto& [name, block] : blocks_) units.push_back({name, {block}});
  units.push_back({last_name_, {last_}});
  return units;
}

}  // namespace gputrain::models
