// MLP-Mixer (Tolstikhin et al., arXiv:2105.01601): patches of an image, mixed by one MLP over places and one over
// channels in turn. Parameters have the names of timm.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>

#include "gputrain/models/model.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/layers.hpp"

namespace {

using namespace gputrain;

struct TinyMixerSpec {
  int64_t patch = 4, channels = 32, depth = 2;
  int64_t token_hidden = 16, channel_hidden = 64;
  std::optional<int64_t> num_classes;

  static void describe(config::Description<TinyMixerSpec>& d) {
    d.summary("MLP-Mixer on square patches; the defaults make a tiny one.");
    d.key("patch", &TinyMixerSpec::patch, "height and width of a patch").range(1, 1e4);
    d.key("channels", &TinyMixerSpec::channels, "features of a patch").range(1, models::kMostChannels);
    d.key("depth", &TinyMixerSpec::depth, "number of blocks").range(1, models::kMostLayers);
    d.key("token_hidden", &TinyMixerSpec::token_hidden, "width inside the MLP over patches")
        .range(1, models::kMostChannels);
    d.key("channel_hidden", &TinyMixerSpec::channel_hidden, "width inside the MLP over channels")
        .range(1, models::kMostChannels);
    d.key("num_classes", &TinyMixerSpec::num_classes, "classes; null: the data's").range(1, models::kMostRows);
  }
};

/// x [..., channels] -> [..., channels]
class MixerMlp final : public nn::Module {
 public:
  MixerMlp(const nn::Context& context, int64_t channels, int64_t hidden)
      : Module(context),
        fc1_(add_child<nn::Linear>("fc1", context, nn::Linear::Options{.in = channels, .out = hidden})),
        fc2_(add_child<nn::Linear>("fc2", context, nn::Linear::Options{.in = hidden, .out = channels})) {}

  at::Tensor forward(const at::Tensor& x) const {
    return fc2_->forward(ops::activate(fc1_->forward(x), ops::Activation::gelu));
  }

 private:
  nn::Linear *fc1_, *fc2_;
};

/// x [batch, patches, channels] -> as x
class MixerBlock final : public nn::Module {
 public:
  MixerBlock(const nn::Context& context, const TinyMixerSpec& spec, int64_t patches)
      : Module(context),
        norm1_(add_child<nn::Norm>("norm1", context, nn::Norm::Options{.channels = spec.channels, .eps = 1e-6})),
        tokens_(add_child<MixerMlp>("mlp_tokens", context, patches, spec.token_hidden)),
        norm2_(add_child<nn::Norm>("norm2", context, nn::Norm::Options{.channels = spec.channels, .eps = 1e-6})),
        channels_(add_child<MixerMlp>("mlp_channels", context, spec.channels, spec.channel_hidden)) {}

  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor mixed = x + tokens_->forward(norm1_->forward(x).transpose(1, 2)).transpose(1, 2);
    return mixed + channels_->forward(norm2_->forward(mixed));
  }

 private:
  nn::Norm* norm1_;
  MixerMlp* tokens_;
  nn::Norm* norm2_;
  MixerMlp* channels_;
};

class TinyMixer final : public models::Model {
 public:
  TinyMixer(const TinyMixerSpec& spec, const nn::Context& context, const models::DataFacts& facts) : Model(context) {
    const auto image = models::image_shape_of(facts);
    const int64_t patches = (image.height / spec.patch) * (image.width / spec.patch);
    if (patches == 0) {
      throw Error(ExitCode::usage,
                  {.what = "images of " + std::to_string(image.height) + " x " + std::to_string(image.width) +
                           " have no patch of " + std::to_string(spec.patch) + " x " + std::to_string(spec.patch),
                   .where = "model.config.patch",
                   .hint = "a smaller patch"});
    }
    stem_ = add_child<nn::Conv2d>(
        "stem.proj", context,
        nn::Conv2d::Options{.in = image.channels, .out = spec.channels, .kernel = spec.patch, .stride = spec.patch});
    for (int64_t i = 0; i < spec.depth; ++i)
      blocks_.push_back(add_child<MixerBlock>("blocks." + std::to_string(i), context, spec, patches));
    norm_ = add_child<nn::Norm>("norm", context, nn::Norm::Options{.channels = spec.channels, .eps = 1e-6});
    head_ = add_child<nn::Linear>(
        "head", context, nn::Linear::Options{.in = spec.channels, .out = models::classes_of(spec.num_classes, facts)});
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = [&] {
      const nn::UnitRange range(*stem_);
      return stem_->forward(images).flatten(2).transpose(1, 2);
    }();
    for (const MixerBlock* block : blocks_) {
      const nn::UnitRange range(*block);
      x = block->forward(x);
    }
    const nn::UnitRange range(*head_);
    return head_->forward(norm_->forward(x).mean(1));
  }

  bool takes_any_size() const override { return false; }
  static models::Abilities abilities() { return {.announces_units = true}; }

  std::vector<models::Unit> units() override {
    std::vector<models::Unit> units{{"stem", {stem_}}};
    for (size_t i = 0; i < blocks_.size(); ++i) units.push_back({"blocks." + std::to_string(i), {blocks_[i]}});
    units.push_back({"head", {norm_, head_}});
    return units;
  }

 private:
  nn::Conv2d* stem_;
  std::vector<MixerBlock*> blocks_;
  nn::Norm* norm_;
  nn::Linear* head_;
};

const config::Registered<TinyMixer, TinyMixerSpec> registered_tiny_mixer{models::catalog(), "tiny_mixer",
                                                                         "small MLP-Mixer"};

}  // namespace
