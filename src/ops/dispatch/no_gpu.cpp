#include "gpu.hpp"

#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/ops/flat_update.hpp"

namespace gputrain::ops {

PathChoice& path_choice() {
  static PathChoice choice({.mode = PathChoice::Mode::never});
  return choice;
}

FlatUpdate::FlatUpdate(std::vector<FlatStretch> stretches) : stretches_(std::move(stretches)) {}
bool FlatUpdate::adamw(const AdamWBuffers&, const UpdateScalars&, const AdamWRule&) { return false; }
bool FlatUpdate::sgd(const SgdBuffers&, const UpdateScalars&, const SgdRule&) { return false; }
at::Tensor square_sum(const at::Tensor&) { return {}; }
GradientScalars gradient_scalars(const at::Tensor&, const std::optional<at::Tensor>&, double) {
  GPUTRAIN_ASSERT(false, "gradient_scalars() needs a result of square_sum()");
}

namespace gpu {

bool is_here(const at::Tensor&) { return false; }
Way norm(const Tensors&, double, bool, double) { return {}; }
Way linear(const Tensors&, bool) { return {}; }
Way feed_forward(const Tensors&, bool, Activation) { return {}; }
Way attention(const at::Tensor&, int64_t, int64_t, bool, double) { return {}; }
Way embedding(const at::Tensor&, const at::Tensor&) { return {}; }
Way curve(const at::Tensor&, Activation) { return {}; }
Way swiglu(const at::Tensor&, const at::Tensor&) { return {}; }
Way rotate(const at::Tensor&) { return {}; }
Way cross_entropy(const at::Tensor&, int64_t, double) { return {}; }
Way batch_norm(const Tensors&, const BatchNormOptions&, bool) { return {}; }
Way conv_norms(const Tensors&, const std::vector<ConvNormShape>&, bool) { return {}; }
Way max_pool(const at::Tensor&, int64_t, int64_t, int64_t) { return {}; }

}  // namespace gpu
}  // namespace gputrain::ops
