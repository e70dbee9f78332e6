// Test-time flip: a prediction that is the mean of those for an image and for its mirror image.
#pragma once

#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// Wrapper that returns the mean of another model's logits for each image and for its mirror image; logits of pixels
/// are mirrored back. The other model must outlive it, keeps its own mode, and may not be trained through it.
class Mirrored final : public Model {
 public:
  explicit Mirrored(Model& model) : Model(model.context()), model_(model) {}

  /// Maps images [batch, channels, height, width] to logits [batch, classes] or, per pixel, [batch, height, width,
  /// classes]. Throws Error(usage) for a model of tokens.
  at::Tensor forward(const at::Tensor& images) override;
  std::vector<Unit> units() override { return model_.units(); }

 private:
  Model& model_;
};

}  // namespace gputrain::models
