// Vision Transformer (Dosovitskiy et al., arXiv:2010.11929): an image is cut into patches, the tokens of an encoder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/transformer.hpp"

namespace gputrain::models {

/// Library whose names the weights have in files.
enum class VitLayout { torchvision, timm };

/// Options; the defaults are those of ViT-B/16.
struct VitSpec {
  int64_t patch_size = 16, n_layer = 12, n_head = 12, n_embd = 768;
  std::optional<int64_t> n_inner = {};
  std::string pooling = "token";
  bool qkv_bias = true;
  double dropout = 0, attention_dropout = 0, drop_path = 0;
  double norm_eps = 1e-6;
  std::optional<std::string> layout = {};
  std::optional<int64_t> num_classes = {};

  int64_t inner() const { return n_inner.value_or(4 * n_embd); }
  /// Returns whether the model has torchvision's form; any other is written for timm.
  bool fits_torchvision() const { return pooling == "token" && qkv_bias; }
};

/// Embedding of the patches, with a token for the class before them and positions: [batch, 1 + patches, channels].
class VitStem final : public nn::Module {
 public:
  VitStem(const nn::Context& context, const VitSpec& spec, int64_t image_channels, int64_t patches);
  at::Tensor forward(const at::Tensor& images) const;

 private:
  nn::Conv2d* projection_;
  nn::Dropout* dropout_;
  at::Tensor class_token_, positions_;
};

/// Block x + attention(norm(x)), then x + feed_forward(norm(x)).
class VitBlock final : public nn::Module {
 public:
  VitBlock(const nn::Context& context, const VitSpec& spec, double drop_path);
  nn::ResidualStream forward(const nn::ResidualStream& in, const nn::Sequence& sequence) const;

 private:
  nn::Norm *attention_norm_, *feed_forward_norm_;
  nn::SelfAttention* attention_;
  nn::FeedForward* feed_forward_;
  nn::Dropout* dropout_;
  nn::DropPath* drop_path_;
};

/// Vision Transformer whose parameters are named as in timm.
class Vit : public Model {
 public:
  Vit(const VitSpec& spec, const nn::Context& context, const DataFacts& facts);

  at::Tensor forward(const at::Tensor& inputs) override;
  std::vector<Unit> units() override;
  static Abilities abilities() {
    return {.announces_units = true, .recomputes_blocks = true, .recomputes_selectively = true};
  }
  bool takes_any_size() const override { return false; }  // each patch has a learned position
  double flops_per_sample() const override;

  /// Grid of patches.
  struct Grid {
    int64_t rows, columns;
    bool operator==(const Grid&) const = default;
  };
  const Grid& grid() const noexcept { return grid_; }
  const VitSpec& spec() const noexcept { return spec_; }
  int64_t patch_size() const noexcept { return spec_.patch_size; }
  /// Library under whose names the weights are written. A job may leave it to the file that the model begins with.
  VitLayout layout() const noexcept { return layout_; }
  void set_layout(VitLayout layout) noexcept { layout_ = layout; }
  bool says_layout() const noexcept { return spec_.layout.has_value(); }
  bool fits_torchvision() const noexcept { return spec_.fits_torchvision(); }

 private:
  at::Tensor pooled(const at::Tensor& x) const;

  VitSpec spec_;
  VitLayout layout_;
  Grid grid_;
  int64_t image_channels_, classes_;
  VitStem* stem_;
  std::vector<VitBlock*> blocks_;
  nn::Norm* norm_;
  nn::Linear* head_;
};

}  // namespace gputrain::models
