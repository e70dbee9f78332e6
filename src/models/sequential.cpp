// Network that the job lists layer by layer. Parameters are named by the index of their layer, as in
// torch.nn.Sequential: "0.weight".
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gputrain/core/error.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/activation.hpp"

namespace gputrain::models {
namespace {

/// Sizes of one sample: [channels, height, width] or [features].
using Sizes = std::vector<int64_t>;

/// Surroundings of a layer.
struct LayerPlace {
  Sizes in;
  const DataFacts& facts;
  std::string before, after;  // the layers beside it; empty: none
};

/// Layer of the list. Its constructor throws Error(usage) for inputs that it does not take.
class Layer : public nn::Module {
 public:
  using Module::Module;
  virtual at::Tensor forward(const at::Tensor& x) = 0;

  const Sizes& gives() const noexcept { return gives_; }
  /// Returns the floating-point operations of a sample, forward and backward.
  double flops() const noexcept { return flops_; }

 protected:
  Sizes gives_;
  double flops_ = 0;
};

using LayerCatalog = config::Catalog<Layer, const nn::Context&, const LayerPlace&>;
LayerCatalog& layer_catalog() {
  static LayerCatalog catalog("layer");
  return catalog;
}

[[noreturn]] void refuse(const LayerPlace& place, const std::string& needs, const std::string& hint) {
  throw Error(ExitCode::usage,
              {.what = fmt::format("needs {}, and {} [{}]", needs,
                                   place.before.empty() ? "the data gives" : place.before + " before it gives",
                                   fmt::join(place.in, ", ")),
               .hint = hint});
}

void need_image(const LayerPlace& place) {
  if (place.in.size() != 3) refuse(place, "an image [channels, height, width]", "put it before flatten and linear");
}

void need_vector(const LayerPlace& place) {
  if (place.in.size() == 1) return;
  refuse(place, "a vector [features]", "put flatten, global_avg_pool or global_max_pool before it");
}

/// Returns channels, height and width after a window has moved over the image.
Sizes moved_over(const LayerPlace& place, int64_t channels, int64_t kernel, int64_t stride, int64_t padding) {
  Sizes sizes{channels};
  for (const int64_t size : {place.in[1], place.in[2]}) {
    if (size + 2 * padding < kernel)
      refuse(place, fmt::format("an image of at least {} x {}", kernel, kernel), "a smaller kernel, or fewer strides");
    sizes.push_back((size + 2 * padding - kernel) / stride + 1);
  }
  return sizes;
}

double product(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), 1.0, std::multiplies<>()); }

struct ConvSpec {
  int64_t channels = 0;
  int64_t kernel_size = 3, stride = 1;
  std::optional<int64_t> padding;
  int64_t groups = 1;
  bool bias = true;

  static void describe(config::Description<ConvSpec>& d) {
    d.key("channels", &ConvSpec::channels, "channels that it gives").required().range(1, kMostChannels);
    d.key("kernel_size", &ConvSpec::kernel_size, "height and width of the filters").range(1, 99);
    d.key("stride", &ConvSpec::stride, "pixels from one place of the filters to the next").range(1, 99);
    d.key("padding", &ConvSpec::padding, "zeros around the image; null: half of the kernel size").range(0, 99);
    d.key("groups", &ConvSpec::groups, "groups of channels that are convolved separately").range(1, kMostChannels);
    d.key("bias", &ConvSpec::bias, "add a number to each channel");
  }
};

class ConvLayer final : public Layer {
 public:
  ConvLayer(const ConvSpec& spec, const nn::Context& context, const LayerPlace& place) : Layer(context) {
    need_image(place);
    const int64_t padding = spec.padding.value_or(spec.kernel_size / 2), in = place.in[0];
    if (in % spec.groups != 0 || spec.channels % spec.groups != 0)
      refuse(place, fmt::format("channels that {} groups divide", spec.groups), "groups: 1");
    gives_ = moved_over(place, spec.channels, spec.kernel_size, spec.stride, padding);
    const auto weights = static_cast<double>(in / spec.groups * spec.kernel_size * spec.kernel_size);
    flops_ = 6 * weights * product(gives_);
    conv_ = add_child<nn::Conv2d>("", context,
                                  nn::Conv2d::Options{.in = in,
                                                      .out = spec.channels,
                                                      .kernel = spec.kernel_size,
                                                      .stride = spec.stride,
                                                      .padding = padding,
                                                      .groups = spec.groups,
                                                      .bias = spec.bias});
  }
  at::Tensor forward(const at::Tensor& x) override { return conv_->forward(x); }

 private:
  nn::Conv2d* conv_;
};

/// Batch norm, which is one operator with a ReLU that follows.
class BatchNormLayer final : public Layer {
 public:
  BatchNormLayer(const config::NoOptions&, const nn::Context& context, const LayerPlace& place)
      : Layer(context), has_relu_(place.after == "relu") {
    need_image(place);
    gives_ = place.in;
    norm_ = add_child<nn::BatchNorm2d>("", context, nn::BatchNorm2d::Options{.channels = place.in[0]});
  }
  at::Tensor forward(const at::Tensor& x) override { return has_relu_ ? norm_->forward_relu(x) : norm_->forward(x); }

 private:
  bool has_relu_;
  nn::BatchNorm2d* norm_;
};

template <ops::Activation activation>
class ActivationLayer final : public Layer {
 public:
  ActivationLayer(const config::NoOptions&, const nn::Context& context, const LayerPlace& place)
      : Layer(context),
        is_done_(activation == ops::Activation::relu && place.before == "batch_norm"),
        keeps_input_(place.before != "conv2d" && place.before != "linear") {
    gives_ = place.in;
  }
  at::Tensor forward(const at::Tensor& x) override {
    if (is_done_) return x;
    return ops::activate(keeps_input_ && ops::overwrites_input(activation) ? x.clone() : x, activation);
  }

 private:
  bool is_done_, keeps_input_;
};

struct PoolSpec {
  int64_t kernel_size = 2;
  std::optional<int64_t> stride;
  int64_t padding = 0;

  static void describe(config::Description<PoolSpec>& d) {
    d.key("kernel_size", &PoolSpec::kernel_size, "height and width of the window").range(1, 99);
    d.key("stride", &PoolSpec::stride, "pixels from one window to the next; null: kernel_size").range(1, 99);
    d.key("padding", &PoolSpec::padding, "rows and columns around the image that never are the largest").range(0, 49);
    d.check([](const PoolSpec& spec, config::SpecIssues& issues) {
      if (spec.padding > spec.kernel_size / 2) issues.add("padding", "must be at most half of kernel_size", "0");
    });
  }
};

class MaxPoolLayer final : public Layer {
 public:
  MaxPoolLayer(const PoolSpec& spec, const nn::Context& context, const LayerPlace& place)
      : Layer(context), spec_(spec), stride_(spec.stride.value_or(spec.kernel_size)) {
    need_image(place);
    gives_ = moved_over(place, place.in[0], spec.kernel_size, stride_, spec.padding);
  }
  at::Tensor forward(const at::Tensor& x) override {
    return ops::max_pool2d(x, spec_.kernel_size, stride_, spec_.padding);
  }

 private:
  PoolSpec spec_;
  int64_t stride_;
};

template <at::Tensor (*pool)(const at::Tensor&)>
class GlobalPoolLayer final : public Layer {
 public:
  GlobalPoolLayer(const config::NoOptions&, const nn::Context& context, const LayerPlace& place) : Layer(context) {
    need_image(place);
    gives_ = {place.in[0]};
  }
  at::Tensor forward(const at::Tensor& x) override { return pool(x); }
};

class FlattenLayer final : public Layer {
 public:
  FlattenLayer(const config::NoOptions&, const nn::Context& context, const LayerPlace& place) : Layer(context) {
    gives_ = {static_cast<int64_t>(product(place.in))};
  }
  at::Tensor forward(const at::Tensor& x) override { return x.flatten(1); }
};

struct LinearSpec {
  std::optional<int64_t> features;
  bool bias = true;

  static void describe(config::Description<LinearSpec>& d) {
    d.key("features", &LinearSpec::features, "numbers that it gives; null: one for each class of the data")
        .range(1, kMostRows);
    d.key("bias", &LinearSpec::bias, "add a number to each");
  }
};

class LinearLayer final : public Layer {
 public:
  LinearLayer(const LinearSpec& spec, const nn::Context& context, const LayerPlace& place) : Layer(context) {
    need_vector(place);
    gives_ = {place.after.empty() ? classes_of(spec.features, place.facts, "features")
                                  : spec.features.value_or(place.facts.num_classes)};
    flops_ = 6 * product(place.in) * product(gives_);
    linear_ =
        add_child<nn::Linear>("", context, nn::Linear::Options{.in = place.in[0], .out = gives_[0], .bias = spec.bias});
  }
  at::Tensor forward(const at::Tensor& x) override { return linear_->forward(x); }

 private:
  nn::Linear* linear_;
};

class LayerNormLayer final : public Layer {
 public:
  LayerNormLayer(const config::NoOptions&, const nn::Context& context, const LayerPlace& place) : Layer(context) {
    need_vector(place);
    gives_ = place.in;
    norm_ = add_child<nn::Norm>("", context, nn::Norm::Options{.channels = place.in[0]});
  }
  at::Tensor forward(const at::Tensor& x) override { return norm_->forward(x); }

 private:
  nn::Norm* norm_;
};

struct DropoutSpec {
  double p = 0.5;

  static void describe(config::Description<DropoutSpec>& d) {
    d.key("p", &DropoutSpec::p, "probability that a number becomes zero in training").range(0, 0.999);
  }
};

class DropoutLayer final : public Layer {
 public:
  DropoutLayer(const DropoutSpec& spec, const nn::Context& context, const LayerPlace& place) : Layer(context) {
    gives_ = place.in;
    dropout_ = add_child<nn::Dropout>("", context, spec.p);
  }
  at::Tensor forward(const at::Tensor& x) override { return dropout_->forward(x); }

 private:
  nn::Dropout* dropout_;
};

template <class Derived, class Spec = config::NoOptions>
using RegisteredLayer = config::Registered<Derived, Spec>;
using ops::Activation;
const RegisteredLayer<ConvLayer, ConvSpec> conv2d{layer_catalog(), "conv2d", "convolution"};
const RegisteredLayer<BatchNormLayer> batch_norm{layer_catalog(), "batch_norm", "batch norm of each channel"};
const RegisteredLayer<ActivationLayer<Activation::relu>> relu{layer_catalog(), "relu", "activation"};
const RegisteredLayer<ActivationLayer<Activation::gelu>> gelu{layer_catalog(), "gelu", "activation"};
const RegisteredLayer<ActivationLayer<Activation::silu>> silu{layer_catalog(), "silu", "activation"};
const RegisteredLayer<ActivationLayer<Activation::tanh>> tanh{layer_catalog(), "tanh", "activation"};
const RegisteredLayer<ActivationLayer<Activation::hardswish>> hardswish{layer_catalog(), "hardswish", "activation"};
const RegisteredLayer<MaxPoolLayer, PoolSpec> max_pool2d{layer_catalog(), "max_pool2d", "largest of each window"};
const RegisteredLayer<GlobalPoolLayer<ops::global_average_pool>> average{layer_catalog(), "global_avg_pool",
                                                                         "mean of each channel"};
const RegisteredLayer<GlobalPoolLayer<ops::global_max_pool>> largest{layer_catalog(), "global_max_pool",
                                                                     "largest of each channel"};
const RegisteredLayer<FlattenLayer> flatten{layer_catalog(), "flatten", "all numbers in a row"};
const RegisteredLayer<LinearLayer, LinearSpec> linear{layer_catalog(), "linear", "dense layer"};
const RegisteredLayer<LayerNormLayer> layer_norm{layer_catalog(), "layer_norm", "layer norm of a vector"};
const RegisteredLayer<DropoutLayer, DropoutSpec> dropout{layer_catalog(), "dropout", "dropout"};

struct LayerSpec {
  config::Choice layer;

  static void describe(config::Description<LayerSpec>& d) {
    d.summary("a layer and its options");
    d.choice("type", &LayerSpec::layer, layer_catalog(), layer_catalog().entries_in_words()).required();
  }
};

std::vector<LayerSpec> default_layers() {
  std::vector<LayerSpec> layers;
  const auto add = [&](const char* name, std::shared_ptr<const void> options = {}) {
    if (!options) options = layer_catalog().with_defaults(name).options;
    layers.push_back({{name, std::move(options)}});
  };
  for (const int64_t channels : {32, 64}) {
    add("conv2d", std::make_shared<ConvSpec>(ConvSpec{.channels = channels}));
    add("batch_norm");
    add("relu");
    add("max_pool2d");
  }
  add("flatten");
  add("linear", std::make_shared<LinearSpec>(LinearSpec{.features = 128}));
  add("relu");
  add("linear");
  return layers;
}

struct SequentialSpec {
  std::vector<LayerSpec> layers = default_layers();

  static void describe(config::Description<SequentialSpec>& d) {
    d.summary("A network that is a list of layers. Sizes follow from the data.");
    d.key("layers", &SequentialSpec::layers, "in order; the last one is linear and gives a number for each class");
    d.check([](const SequentialSpec& spec, config::SpecIssues& issues) {
      if (spec.layers.empty() || spec.layers.back().layer.name != "linear")
        issues.add("layers", "the last layer must be linear, which gives a number for each class", "- {type: linear}");
    });
  }
};

class Sequential final : public Model {
 public:
  Sequential(const SequentialSpec& spec, const nn::Context& context, const DataFacts& facts) : Model(context) {
    if (facts.vocabulary > 0) {
      throw Error(ExitCode::usage, {.what = "its layers take images or other numbers, and the data has tokens",
                                    .where = "model.type: sequential",
                                    .hint = "use gpt or bert"});
    }
    Sizes sizes = facts.input_shape;
    const auto type_at = [&](size_t i) { return i < spec.layers.size() ? spec.layers[i].layer.name : std::string(); };
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const LayerPlace place{sizes, facts, i > 0 ? type_at(i - 1) : std::string(), type_at(i + 1)};
      try {
        layers_.push_back(adopt(std::to_string(i), layer_catalog().make(spec.layers[i].layer, context, place)));
      } catch (const Error& mistake) {
        throw Error(mistake.code(), {.what = type_at(i) + " " + mistake.parts().what,
                                     .where = fmt::format("model.config.layers[{}]", i),
                                     .hint = mistake.parts().hint});
      }
      sizes = layers_.back()->gives();
      flops_ += layers_.back()->flops();
      takes_any_size_ = takes_any_size_ && type_at(i) != "flatten";
    }
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const bool is_image = context().channels_last && inputs.dim() == 4;
    at::Tensor x = is_image ? inputs.contiguous(at::MemoryFormat::ChannelsLast) : inputs;
    for (Layer* layer : layers_) {
      std::optional<nn::UnitRange> range;
      if (has_parameters(*layer)) range.emplace(*layer);
      x = layer->forward(x);
    }
    return x;
  }

  std::vector<Unit> units() override {
    std::vector<Unit> units;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (has_parameters(*layers_[i])) units.push_back({std::to_string(i), {layers_[i]}});
    }
    return units;
  }

  static Abilities abilities() { return {.announces_units = true}; }
  bool takes_any_size() const override { return takes_any_size_; }
  double flops_per_sample() const override { return flops_; }

 private:
  static bool has_parameters(Layer& layer) {
    bool found = false;
    layer.each_parameter([&](const std::string&, nn::Parameter&) { found = true; });
    return found;
  }

  std::vector<Layer*> layers_;
  double flops_ = 0;
  bool takes_any_size_ = true;
};

const config::Registered<Sequential, SequentialSpec> registered_sequential{catalog(), "sequential",
                                                                           "a network listed layer by layer"};

}  // namespace
}  // namespace gputrain::models
