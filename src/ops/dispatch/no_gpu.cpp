#include "gpu.hpp"

#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/ops/blockwise_update.hpp"
#include "gputrain/ops/flat_update.hpp"

namespace gputrain::ops {

KernelAutotuner& kernel_autotuner() {
  static KernelAutotuner choice({.mode = KernelAutotuner::Mode::never});
  return choice;
}

FlatUpdate::FlatUpdate(std::vector<FlatStretch> stretches) : stretches_(std::move(stretches)) {}
bool FlatUpdate::adamw(const AdamWBuffers&, const UpdateScalars&, const AdamWRule&) { return false; }
bool FlatUpdate::sgd(const SgdBuffers&, const UpdateScalars&, const SgdRule&) { return false; }
bool BlockwiseUpdate::adamw(const at::Tensor&, const UpdateScalars&, const AdamWRule&, const Reference&) {
  return false;
}
at::Tensor square_sum(const at::Tensor&) { return {}; }
GradientScalars gradient_scalars(const at::Tensor&, const std::optional<at::Tensor>&, double) {
  GPUTRAIN_ASSERT(false, "gradient_scalars() needs a result of square_sum()");
}

namespace gpu {

bool is_here(const at::Tensor&) { return false; }
OpImpl norm(const Tensors&, double, bool, double) { return {}; }
OpImpl linear(const Tensors&, bool) { return {}; }
OpImpl linear_each(const Tensors&) { return {}; }
Tensors split_columns(const at::Tensor&, const std::vector<int64_t>&) { return {}; }
at::Tensor grouped_products(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool) { return {}; }
bool add_grouped_products(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { return false; }
OpImpl feed_forward(const Tensors&, bool, Activation) { return {}; }
OpImpl attention(const at::Tensor&, int64_t, int64_t, bool, double) { return {}; }
at::Tensor attention_to_earlier(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionOptions&) {
  return {};
}
at::Tensor attention_in_room(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionOptions&) {
  return {};
}
at::Tensor attention_of_texts(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionOptions&) {
  return {};
}
OpImpl embedding(const at::Tensor&, const at::Tensor&) { return {}; }
OpImpl activation(const at::Tensor&, Activation) { return {}; }
OpImpl swiglu(const at::Tensor&, const at::Tensor&) { return {}; }
OpImpl rotate(const at::Tensor&) { return {}; }
OpImpl cross_entropy(const at::Tensor&, int64_t, double) { return {}; }
OpImpl log_probs(const at::Tensor&, int64_t) { return {}; }
OpImpl batch_norm(const Tensors&, const BatchNormOptions&, bool) { return {}; }
OpImpl conv_norms(const Tensors&, const std::vector<ConvNormShape>&, bool) { return {}; }
void quantize(const at::Tensor&, const Quantized4&) {}
void dequantize(const Quantized4&, at::ScalarType, const at::Tensor&) {}
void quantize(const at::Tensor&, const QuantizedRows&) {}
void dequantize(const QuantizedRows&, at::ScalarType, const at::Tensor&) {}
OpImpl max_pool(const at::Tensor&, int64_t, int64_t, int64_t) { return {}; }

}  // namespace gpu
}  // namespace gputrain::ops
