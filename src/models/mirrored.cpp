#include "gputrain/models/mirrored.hpp"

#include "gputrain/core/error.hpp"

namespace gputrain::models {

at::Tensor Mirrored::forward(const at::Tensor& images) {
  at::Tensor logits = model_.forward(images);
  const bool labels_pixels = logits.dim() == 4;
  if (images.dim() != 4 || (logits.dim() != 2 && !labels_pixels)) {
    throw Error(ExitCode::usage, {.what = "takes a model that gives one prediction for each image, or each pixel",
                                  .where = "eval.hflip",
                                  .hint = "--set eval.hflip=false"});
  }
  const at::Tensor mirrored = model_.forward(images.flip(-1));
  return logits.add_(labels_pixels ? mirrored.flip(2) : mirrored).mul_(0.5);
}

}  // namespace gputrain::models
