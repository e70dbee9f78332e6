// Activation checkpointing: the forward pass keeps less, the backward pass computes it again. Gradients are the same
// bit for bit, also with dropout: what is computed again draws the same random numbers.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::nn {

/// What is computed again.
enum class Recompute {
  none,
  selective,  // norms and activations, which cost much memory and little time
  block       // whole blocks: only their inputs are kept (Chen et al., arXiv:1604.06174)
};

/// Reads none, selective or block.
Recompute recompute_from_name(std::string_view name);

using Block = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// block(inputs), of which `how` == block keeps only the inputs, and runs it again in the backward pass. The first
/// block of a model, whose inputs need no gradient, is kept. `block` is copied, and what it refers to outlives the
/// backward pass.
std::vector<at::Tensor> recomputed_block(Recompute how, const std::vector<at::Tensor>& inputs, const Block& block);

/// Whether a block is being run for the second time, when it must not count as another batch.
bool is_recomputing() noexcept;

/// At its end values that are to be computed again are left to whoever saved them, and with the last of those their
/// inputs. Without it they are kept until the next forward pass, in a recorded step as long as the recording.
class ForwardPass {
 public:
  ForwardPass() = default;
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;
  ~ForwardPass();
};

/// compute(a, b), a function of its arguments alone. Under `how` == selective whoever saves the result for the backward
/// pass keeps a and b instead, and the result is computed again when it is asked for. `b` may be undefined.
at::Tensor recomputed_value(Recompute how,
                            const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& compute,
                            const at::Tensor& a, const at::Tensor& b = {});

}  // namespace gputrain::nn
