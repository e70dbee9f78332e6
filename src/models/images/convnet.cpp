#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/add.h>

#include "gputrain/core/error.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/activation.hpp"

namespace gputrain::models {
namespace {

struct ConvnetSpec {
  std::vector<int64_t> channels{32, 64};
  int64_t kernel_size = 3;
  std::string downsample = "pool";
  bool batch_norm = false;
  bool residual = false;
  std::string global_pool = "none";
  std::vector<int64_t> hidden{128};
  double dropout = 0;
  std::optional<int64_t> num_classes;

  static void describe(config::Description<ConvnetSpec>& d) {
    d.summary("A small convolutional network: stages that halve the image, then dense layers.");
    d.key("channels", &ConvnetSpec::channels, "channels of each stage: a convolution and a ReLU").range(1, 1e6);
    d.key("kernel_size", &ConvnetSpec::kernel_size, "odd; height and width of the filters").range(1, 99);
    d.key("downsample", &ConvnetSpec::downsample, "how a stage halves the image: 2x2 max-pooling, or a stride of 2")
        .choices({"pool", "stride", "none"});
    d.key("batch_norm", &ConvnetSpec::batch_norm, "normalise after each convolution");
    d.key("residual", &ConvnetSpec::residual, "end each stage with two more convolutions and a shortcut around them");
    d.key("global_pool", &ConvnetSpec::global_pool, "one value per channel before the dense layers; none: all pixels")
        .choices({"none", "max", "avg"});
    d.key("hidden", &ConvnetSpec::hidden, "outputs of each hidden dense layer").range(1, 1e7);
    d.key("dropout", &ConvnetSpec::dropout, "probability before the dense layers and after each hidden one")
        .range(0, 0.999)
        .aliases({"dropout_rate"});
    d.key("num_classes", &ConvnetSpec::num_classes, "classes; null: the data's").range(1, 1e8);
    d.check([](const ConvnetSpec& spec, config::SpecIssues& issues) {
      if (spec.kernel_size % 2 == 0) {
        issues.add("kernel_size", "kernel_size must be odd, so that filters have a centre",
                   "kernel_size: " + std::to_string(spec.kernel_size + 1));
      }
    });
  }
};

/// Unit of a convolution, an optional batch norm, and ReLU.
class ConvUnit final : public nn::Module {
 public:
  ConvUnit(const nn::Context& context, const ConvnetSpec& spec, int64_t in, int64_t out, int64_t stride)
      : Module(context) {
    conv_ = add_child<nn::Conv2d>("conv", context,
                                  nn::Conv2d::Options{.in = in,
                                                      .out = out,
                                                      .kernel = spec.kernel_size,
                                                      .stride = stride,
                                                      .padding = spec.kernel_size / 2,
                                                      .bias = !spec.batch_norm});
    if (spec.batch_norm) norm_ = add_child<nn::BatchNorm2d>("norm", context, nn::BatchNorm2d::Options{.channels = out});
  }

  at::Tensor forward(const at::Tensor& x) const {
    return norm_ != nullptr ? nn::ConvNorm::forward_relu({{conv_, norm_}}, x)
                            : ops::activate(conv_->forward(x), ops::Activation::relu);
  }

 private:
  nn::Conv2d* conv_;
  nn::BatchNorm2d* norm_ = nullptr;
};

class Stage final : public nn::Module {
 public:
  Stage(const nn::Context& context, const ConvnetSpec& spec, int64_t in, int64_t out)
      : Module(context), pools_(spec.downsample == "pool") {
    entry_ = add_child<ConvUnit>("entry", context, spec, in, out, spec.downsample == "stride" ? 2 : 1);
    if (!spec.residual) return;
    first_ = add_child<ConvUnit>("residual.0", context, spec, out, out, 1);
    second_ = add_child<ConvUnit>("residual.1", context, spec, out, out, 1);
  }

  at::Tensor forward(const at::Tensor& x) const {
    at::Tensor y = entry_->forward(x);
    if (pools_) y = ops::max_pool2d(y, 2, 2);
    return first_ != nullptr ? at::add(y, second_->forward(first_->forward(y))) : y;
  }

 private:
  bool pools_;
  ConvUnit* entry_;
  ConvUnit *first_ = nullptr, *second_ = nullptr;
};

class Convnet final : public Model {
 public:
  Convnet(const ConvnetSpec& spec, const nn::Context& context, const DataFacts& facts)
      : Model(context), global_pool_(spec.global_pool) {
    const ImageShape image = image_shape_of(facts);
    check(spec, image);
    int64_t in = image.channels, height = image.height, width = image.width;
    for (size_t i = 0; i < spec.channels.size(); in = spec.channels[i++]) {
      stages_.push_back(add_child<Stage>("stages." + std::to_string(i), context, spec, in, spec.channels[i]));
      height = halved(spec, height);
      width = halved(spec, width);
    }
    if (global_pool_ == "none") in *= height * width;
    dropout_ = add_child<nn::Dropout>("dropout", context, spec.dropout);
    for (size_t i = 0; i < spec.hidden.size(); in = spec.hidden[i++]) {
      hidden_.push_back(add_child<nn::Linear>("hidden." + std::to_string(i), context,
                                              nn::Linear::Options{.in = in, .out = spec.hidden[i]}));
    }
    classifier_ = add_child<nn::Linear>("classifier", context,
                                        nn::Linear::Options{.in = in, .out = classes_of(spec.num_classes, facts)});
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = context().channels_last ? inputs.contiguous(at::MemoryFormat::ChannelsLast) : inputs;
    for (const Stage* stage : stages_) x = run_block(x, *stage);
    const nn::UnitRange range(*classifier_);
    x = dropout_->forward(pooled(x));
    for (const nn::Linear* layer : hidden_) {
      x = dropout_->forward(ops::activate(layer->forward(x), ops::Activation::relu));
    }
    return classifier_->forward(x);
  }

  bool takes_any_size() const override { return global_pool_ != "none"; }

  std::vector<Unit> units() override {
    std::vector<Unit> units;
    for (size_t i = 0; i < stages_.size(); ++i) units.push_back({"stages." + std::to_string(i), {stages_[i]}});
    Unit head{"head", {hidden_.begin(), hidden_.end()}};
    head.modules.push_back(classifier_);
    units.push_back(std::move(head));
    return units;
  }

  static Abilities abilities() { return {.announces_units = true, .recomputes_blocks = true}; }

 private:
  static int64_t halved(const ConvnetSpec& spec, int64_t size) {
    if (spec.downsample == "pool") return size / 2;
    return spec.downsample == "stride" ? (size + 1) / 2 : size;
  }

  static void check(const ConvnetSpec& spec, const ImageShape& image) {
    int64_t size = std::min(image.height, image.width);
    for (size_t i = 0; i < spec.channels.size(); ++i) size = halved(spec, size);
    if (size < 1) {
      throw Error(ExitCode::usage,
                  {.what = "an image of " + std::to_string(image.height) + " x " + std::to_string(image.width) +
                           " cannot be halved " + std::to_string(spec.channels.size()) + " times",
                   .where = "model.config.channels",
                   .hint = "use fewer entries in channels, or downsample: none"});
    }
  }

  at::Tensor pooled(const at::Tensor& x) const {
    if (global_pool_ == "max") return ops::global_max_pool(x);
    return global_pool_ == "avg" ? ops::global_average_pool(x) : x.flatten(1);
  }

  std::string global_pool_;
  std::vector<Stage*> stages_;
  nn::Dropout* dropout_;
  std::vector<nn::Linear*> hidden_;
  nn::Linear* classifier_;
};

const config::Registered<Convnet, ConvnetSpec> registered_convnet{catalog(), "convnet", "small convolutional network"};

}  // namespace
}  // namespace gputrain::models
