// Activation checkpointing: the forward pass stores less, and the backward pass recomputes it. Gradients are
// bit-identical, also with dropout: recomputation draws the same random numbers.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::nn {

/// The parts that the backward pass recomputes.
enum class Recompute {
  none,
  selective,       // norms and activations: much memory, little time
  block,           // whole blocks: only their inputs are stored (Chen et al., arXiv:1604.06174)
  offloaded_block  // the same with their inputs in the host's memory
};

constexpr bool is_of_blocks(Recompute how) { return how == Recompute::block || how == Recompute::offloaded_block; }

/// Parses selective or block; any other name is none.
Recompute recompute_from_name(std::string_view name, bool offloads);

using Block = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Returns block(inputs). If blocks are recomputed, stores only the inputs and runs the block again in the backward
/// pass. If no input needs a gradient (a model's first block behind a frozen stem), `is_trained` says whether the block
/// has parameters that do; if not, or if it is null, the block runs as usual. `block` is copied; objects that it refers
/// to must outlive the backward pass.
std::vector<at::Tensor> recomputed_block(Recompute how, const std::vector<at::Tensor>& inputs, const Block& block,
                                         const std::function<bool()>& is_trained = {});

/// Returns whether a block runs for the second time. It must not count as another batch.
bool is_recomputing() noexcept;

/// Scope of a forward pass. Its end forgets recomputable values, so that the last tensor saved from one frees its
/// inputs. Otherwise these live until the next forward pass, or as long as a recorded step's recording.
class ForwardPass {
 public:
  ForwardPass() = default;
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;
  ~ForwardPass();
};

/// Returns compute(a, b), which must depend only on its arguments. With `how` == selective, autograd saves a and b
/// instead of the result and recomputes it on access. `b` may be undefined.
at::Tensor recomputed_value(Recompute how,
                            const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& compute,
                            const at::Tensor& a, const at::Tensor& b = {});

}  // namespace gputrain::nn
