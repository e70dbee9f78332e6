#include "vit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mean.h>

#include "gputrain/core/error.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::models {
namespace {

constexpr double kVitInitStd = 0.02;

VitLayout vit_layout_of(const VitSpec& spec) {
  const std::string name = spec.layout.value_or(spec.fits_torchvision() ? "torchvision" : "timm");
  return name == "timm" ? VitLayout::timm : VitLayout::torchvision;
}

Vit::Grid vit_grid_of(const VitSpec& spec, const ImageShape& image) {
  const int64_t patch = spec.patch_size;
  if (image.height % patch == 0 && image.width % patch == 0) return {image.height / patch, image.width / patch};
  const auto filled = [patch](int64_t side) { return std::to_string((side + patch - 1) / patch * patch); };
  const std::string height = filled(image.height), width = filled(image.width);
  throw Error(ExitCode::usage,
              {.what = "an image of " + std::to_string(image.height) + " x " + std::to_string(image.width) +
                       " cannot be cut into patches of " + std::to_string(patch) + " x " + std::to_string(patch),
               .where = "model.config.patch_size",
               .hint = "give another patch_size, or data.image.size: " +
                       (height == width ? height : "[" + height + ", " + width + "]")});
}

nn::SelfAttention::Options vit_attention_options(const VitSpec& spec) {
  return {.naming = nn::Naming::timm,
          .channels = spec.n_embd,
          .heads = spec.n_head,
          .key_heads = spec.n_head,
          .causal = false,
          .input_bias = spec.qkv_bias,
          .dropout = spec.attention_dropout,
          .weight_init = nn::Init::normal(kVitInitStd),
          .output_init = nn::Init::normal(kVitInitStd)};
}

nn::FeedForward::Options vit_feed_forward_options(const VitSpec& spec) {
  return {.naming = nn::Naming::timm,
          .channels = spec.n_embd,
          .inner = spec.inner(),
          .activation = ops::Activation::gelu,
          .dropout = spec.dropout,
          .weight_init = nn::Init::normal(kVitInitStd),
          .output_init = nn::Init::normal(kVitInitStd)};
}

nn::Conv2d::Options patch_options(const VitSpec& spec, int64_t image_channels) {
  const auto fan_in = static_cast<double>(image_channels * spec.patch_size * spec.patch_size);
  return {.in = image_channels,
          .out = spec.n_embd,
          .kernel = spec.patch_size,
          .stride = spec.patch_size,
          .weight_init = nn::Init::normal(std::sqrt(1 / fan_in))};
}

}  // namespace

VitStem::VitStem(const nn::Context& context, const VitSpec& spec, int64_t image_channels, int64_t patches)
    : Module(context) {
  class_token_ = register_parameter("cls_token", {1, 1, spec.n_embd}, nn::Init::zeros(), nn::ParameterRole::embedding);
  positions_ = register_parameter("pos_embed", {1, 1 + patches, spec.n_embd}, nn::Init::normal(kVitInitStd),
                                  nn::ParameterRole::embedding);
  projection_ = add_child<nn::Conv2d>("patch_embed.proj", context, patch_options(spec, image_channels));
  dropout_ = add_child<nn::Dropout>("pos_drop", context, spec.dropout);
}

at::Tensor VitStem::forward(const at::Tensor& images) const {
  const at::Tensor patches = projection_->forward(images).flatten(2).transpose(1, 2);
  const at::Tensor first = class_token_.expand({patches.size(0), -1, -1});
  const at::Tensor x = at::add(at::cat({first, ops::cast(patches, context().policy.master)}, 1), positions_);
  return dropout_->forward(ops::cast(x, context().policy.compute));
}

VitBlock::VitBlock(const nn::Context& context, const VitSpec& spec, double drop_path) : Module(context) {
  const nn::Norm::Options norm{.channels = spec.n_embd, .eps = spec.norm_eps};
  attention_norm_ = add_child<nn::Norm>("norm1", context, norm);
  attention_ = add_child<nn::SelfAttention>("attn", context, vit_attention_options(spec));
  feed_forward_norm_ = add_child<nn::Norm>("norm2", context, norm);
  feed_forward_ = add_child<nn::FeedForward>("mlp", context, vit_feed_forward_options(spec));
  dropout_ = add_child<nn::Dropout>("drop", context, spec.dropout);
  drop_path_ = add_child<nn::DropPath>("drop_path", context, drop_path);
}

nn::ResidualStream VitBlock::forward(const nn::ResidualStream& in, const nn::Sequence& sequence) const {
  const auto [x, attention_in] = attention_norm_->forward_sum(in.added, in.x);
  const at::Tensor attended = drop_path_->forward(attention_->forward(attention_in, sequence));
  const auto [sum, normed] = feed_forward_norm_->forward_sum(attended, x, dropout_->active_probability());
  return {sum, drop_path_->forward(dropout_->forward(feed_forward_->forward(normed)))};
}

Vit::Vit(const VitSpec& spec, const nn::Context& context, const DataFacts& facts)
    : Model(context), spec_(spec), layout_(vit_layout_of(spec)) {
  const ImageShape image = image_shape_of(facts);
  image_channels_ = image.channels;
  classes_ = classes_of(spec.num_classes, facts);
  grid_ = vit_grid_of(spec, image);
  stem_ = add_child<VitStem>("", context, spec, image.channels, grid_.rows * grid_.columns);
  for (int64_t i = 0; i < spec.n_layer; ++i) {
    const double share = spec.n_layer > 1 ? static_cast<double>(i) / static_cast<double>(spec.n_layer - 1) : 0;
    blocks_.push_back(add_child<VitBlock>("blocks." + std::to_string(i), context, spec, share * spec.drop_path));
  }
  norm_ = add_child<nn::Norm>(spec.pooling == "mean" ? "fc_norm" : "norm", context,
                              nn::Norm::Options{.channels = spec.n_embd, .eps = spec.norm_eps});
  head_ = add_child<nn::Linear>(
      "head", context,
      nn::Linear::Options{.in = spec.n_embd, .out = classes_, .weight_init = nn::Init::normal(kVitInitStd)});
}

at::Tensor Vit::pooled(const at::Tensor& x) const {
  if (spec_.pooling == "token") return x.select(1, 0);
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return ops::cast(at::mean(x.narrow(1, 1, x.size(1) - 1), 1, /*keepdim=*/false, wide), x.scalar_type());
}

at::Tensor Vit::forward(const at::Tensor& inputs) {
  nn::ResidualStream stream;
  {
    const nn::UnitRange range(*stem_);
    stream.x = stem_->forward(context().channels_last ? inputs.contiguous(at::MemoryFormat::ChannelsLast) : inputs);
  }
  for (const VitBlock* block : blocks_) stream = run_block(stream, *block, {});
  const nn::UnitRange range(*norm_);
  return head_->forward(norm_->forward(pooled(stream.sum())));
}

std::vector<Unit> Vit::units() {
  std::vector<Unit> units{{"stem", {stem_}}};
  for (size_t i = 0; i < blocks_.size(); ++i) units.push_back({"blocks." + std::to_string(i), {blocks_[i]}});
  units.push_back({"head", {norm_, head_}});
  return units;
}

// Counts six operations for each weight and token, and twelve per channel for each pair of tokens.
double Vit::flops_per_sample() const {
  const auto patches = static_cast<double>(grid_.rows * grid_.columns), channels = static_cast<double>(spec_.n_embd);
  const auto layers = static_cast<double>(spec_.n_layer), tokens = patches + 1;
  const double patch = static_cast<double>(image_channels_ * spec_.patch_size * spec_.patch_size) * channels;
  const double block = 4 * channels * channels + 2 * channels * static_cast<double>(spec_.inner());
  const double weights = patches * patch + tokens * layers * block + channels * static_cast<double>(classes_);
  return 6 * weights + 12 * channels * layers * tokens * tokens;
}

namespace {

template <class Spec>
void describe_vit(config::Description<Spec>& d) {
  d.summary("A Vision Transformer (Dosovitskiy et al., arXiv:2010.11929). The image size is that of the data.");
  d.key("patch_size", &VitSpec::patch_size, "height and width of the patches that an image is cut into")
      .range(1, 1 << 16)
      .unit("pixels");
  d.key("n_layer", &VitSpec::n_layer, "blocks").range(1, kMostLayers).aliases({"num_layers", "depth"});
  d.key("n_head", &VitSpec::n_head, "attention heads").range(1, kMostChannels).aliases({"num_heads"});
  d.key("n_embd", &VitSpec::n_embd, "channels").range(1, kMostChannels).aliases({"hidden_dim", "embed_dim"});
  d.key("n_inner", &VitSpec::n_inner, "channels inside the feed-forward layers; null: 4 n_embd")
      .range(1, kMostRows)
      .aliases({"mlp_dim"});
  d.key("pooling", &VitSpec::pooling,
        "what the classes are told from: the token that is put in front of the patches, or the mean of the patches")
      .choices({"token", "mean"})
      .aliases({"global_pool"});
  d.key("qkv_bias", &VitSpec::qkv_bias, "queries, keys and values have a bias");
  d.key("dropout", &VitSpec::dropout, "probability after the positions and in each block").range(0, 0.999);
  d.key("attention_dropout", &VitSpec::attention_dropout, "the same on attention weights").range(0, 0.999);
  d.key("drop_path", &VitSpec::drop_path,
        "stochastic depth: probability that a sample passes by a half of the last block, growing from 0 in the first")
      .range(0, 0.999)
      .aliases({"stochastic_depth", "drop_path_rate"});
  d.key("norm_eps", &VitSpec::norm_eps, "added to the variance in normalisations").above(0);
  d.key("layout", &VitSpec::layout,
        "whose names the written weights have; those of both are read. null: those of model.pretrained, else "
        "torchvision's with pooling: token and qkv_bias: true")
      .choices({"torchvision", "timm"});
  d.key("num_classes", &VitSpec::num_classes, "classes; null: the data's").range(1, kMostRows);
  d.check([](const Spec& spec, config::SpecIssues& issues) {
    check_division(issues, "n_embd", "n_embd", spec.n_embd, "n_head", spec.n_head);
    if (spec.layout == "torchvision" && !spec.fits_torchvision()) {
      issues.add("layout", "torchvision's ViT has pooling: token, and biases of queries, keys and values",
                 "layout: timm, or leave it out");
    }
  });
}

/// Sizes that are published under a name; a job may change them.
struct VitSizes {
  int64_t heads, channels;
};
constexpr VitSizes kVitTiny{3, 192}, kVitSmall{6, 384}, kVitBase{12, 768};

template <const VitSizes& kSizes>
struct VitSpecOf : VitSpec {
  VitSpecOf() {
    n_head = kSizes.heads;
    n_embd = kSizes.channels;
  }
  static void describe(config::Description<VitSpecOf>& d) { describe_vit(d); }
};

const config::Registered<Vit, VitSpecOf<kVitBase>> registered_vit{catalog(), "vit", "Vision Transformer of any size"};
const config::Registered<Vit, VitSpecOf<kVitTiny>> registered_tiny{catalog(), "vit_ti_16", "ViT-Ti/16"};
const config::Registered<Vit, VitSpecOf<kVitSmall>> registered_small{catalog(), "vit_s_16", "ViT-S/16"};
const config::Registered<Vit, VitSpecOf<kVitBase>> registered_base{catalog(), "vit_b_16", "ViT-B/16"};

}  // namespace

}  // namespace gputrain::models
