// Test-time flip: a prediction that is the mean of those for an image and for its mirror image.
#pragma once

#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// Gives the mean of another model's logits for each image and for the image mirrored left to right, where those of
/// pixels are mirrored back. That model must outlive it, keeps its own mode, and may not be trained through it.
class Mirrored final : public Model {
 public:
  explicit Mirrored(Model& model) : Model(model.context()), model_(model) {}

  /// Images [batch, channels, height, width] -> logits [batch, classes] or, of pixels, [batch, height, width, classes].
  /// Throws Error(usage) for a model of tokens.
  at::Tensor forward(const at::Tensor& images) override;
  std::vector<Unit> units() override { return model_.units(); }

 private:
  Model& model_;
};

}  // namespace gputrain::models
