#include "kernel_comparison.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

namespace gputrain::ops {
namespace {

/// Returns the relative error that rounding in this type allows. compare() also allows twice ATen's error.
double tolerance_of(at::ScalarType type) { return type == at::kFloat || type == at::kDouble ? 2e-5 : 6e-3; }

/// Returns the first entries of dimension `dim`, at most `count` but at least one.
at::Tensor first_of(const at::Tensor& tensor, int64_t dim, int64_t count) {
  return tensor.narrow(dim, 0, std::clamp<int64_t>(count, 1, tensor.size(dim)));
}

/// Returns the inputs; if an input or a result has more than `most` elements, only part of the batched inputs' rows. A
/// packed batch may be a single row of texts, so a row of rows is cut as well.
Tensors parts_of(const Tensors& inputs, const KernelAutotuner::Inputs& kinds, int64_t most) {
  Tensors parts = inputs;
  for (at::Tensor& part : parts) {
    // A weight without memory, because ranks share it out and its copy is read: only the gradient counts.
    const bool has_none = part.defined() && part.numel() > 0 && part.storage().nbytes() == 0;
    if (has_none) part = at::zeros_like(part);
  }
  int64_t growth = kinds.growth;
  if (kinds.has_outputs_by_row && inputs[1].numel() > most) {
    constexpr int64_t kPack = 64;
    const int64_t outputs = inputs[1].size(0), kept = std::max(kPack, most / inputs[1].size(1) / kPack * kPack);
    for (size_t i = kinds.batched; i < parts.size(); ++i)
      if (parts[i].defined()) parts[i] = first_of(parts[i], 0, kept);
    growth = std::max<int64_t>(1, growth * std::min(kept, outputs) / outputs);
  }
  const int64_t elements = inputs[0].numel() * growth;
  const int64_t per_entry = elements / std::max<int64_t>(1, inputs[0].size(0));
  const bool is_cut_within = inputs[0].dim() == 3 && per_entry > most;
  for (size_t i = 0; i < kinds.batched && elements > most; ++i) {
    if (!parts[i].defined() || parts[i].dim() == 0) continue;
    parts[i] = first_of(parts[i], 0, most / per_entry);
    if (is_cut_within && parts[i].dim() == 3 && parts[i].size(1) == inputs[0].size(1))
      parts[i] = first_of(parts[i], 1, most / std::max<int64_t>(1, per_entry / inputs[0].size(1)));
  }
  return parts;
}

/// Leaves with the inputs' values, in fp32 if `wider`.
Tensors leaves_of(const Tensors& inputs, const KernelAutotuner::Inputs& kinds, bool wider) {
  Tensors leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      leaves.emplace_back();
      continue;
    }
    const at::Tensor input = inputs[i].detach();
    const bool is_float = at::isFloatingType(input.scalar_type());
    // Dense strides are kept; a view gets the strides of a new tensor, as in a clone.
    at::Tensor leaf = wider && is_float ? input.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true) : input.clone();
    // Infinities, as in first steps in fp16, would make all results NaN and both ways wrong.
    if (is_float) at::nan_to_num_(leaf, 0.0, 0.0, 0.0);
    leaves.push_back(leaf.set_requires_grad(i < kinds.differentiable));
  }
  return leaves;
}

/// Results, and gradients of the leaves that require one; both ways get the same gradients of the results.
Tensors results_of(const OpImpl& impl, const Tensors& leaves, const Tensors& gradients) {
  Tensors handed;  // a way may overwrite its inputs but not a leaf: pass a view
  for (const at::Tensor& leaf : leaves) {
    const bool is_leaf = leaf.defined() && leaf.requires_grad();
    if (is_leaf) leaf.mutable_grad() = at::Tensor();
    handed.push_back(is_leaf ? leaf.view_as(leaf) : leaf);
  }
  const Tensors outputs = impl(handed);
  Tensors results, roots, root_gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(outputs[i].detach());
    if (!outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i].to(outputs[i].scalar_type()));
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
  for (const at::Tensor& leaf : leaves) {
    if (leaf.defined() && leaf.requires_grad() && leaf.grad().defined()) results.push_back(leaf.grad().clone());
  }
  return results;
}

/// Values of changing sign and size. No random numbers: drawing them would change the run's own.
at::Tensor gradient_for(const at::Tensor& y) {
  if (y.dim() == 0) return at::ones_like(y);
  const at::Tensor angles = at::arange(1, y.numel() + 1, y.options().dtype(at::kFloat)).mul_(1.7);
  return at::zeros_like(y).copy_(angles.sin_().view(y.sizes()));
}

double error_of(const at::Tensor& result, const at::Tensor& exact) {
  const auto norm = [](const at::Tensor& x) { return at::linalg_vector_norm(x.to(at::kDouble)).item<double>(); };
  const double length = norm(exact), difference = norm(at::sub(result.to(at::kDouble), exact.to(at::kDouble)));
  return difference == 0 ? 0 : difference / length;
}

/// Disables cuDNN's search for algorithms: it does not pay for a single run.
class WithoutCudnnSearch {
 public:
  WithoutCudnnSearch() { at::globalContext().setBenchmarkCuDNN(false); }
  WithoutCudnnSearch(const WithoutCudnnSearch&) = delete;
  WithoutCudnnSearch& operator=(const WithoutCudnnSearch&) = delete;
  ~WithoutCudnnSearch() { at::globalContext().setBenchmarkCuDNN(before_); }

 private:
  bool before_ = at::globalContext().benchmarkCuDNN();
};

thread_local bool is_exact = false;

/// Makes computes_exact_results() true on this thread. Operators choose their way in the forward pass, and so the
/// backward pass of a GPU, which has its own thread, needs nothing.
class ExactResults {
 public:
  ExactResults() { is_exact = true; }
  ExactResults(const ExactResults&) = delete;
  ExactResults& operator=(const ExactResults&) = delete;
  ~ExactResults() { is_exact = false; }
};

Tensors exact_results(const OpImpl& reference, const Tensors& wide, const Tensors& gradients) {
  const ExactResults exact;
  const WithoutCudnnSearch once;
  return results_of(reference, wide, gradients);
}

KernelComparison compare(const Tensors& inputs, const KernelAutotuner::Inputs& kinds, const OpImpl& custom,
                         const OpImpl& reference, const KernelAutotuner::Options& options) {
  const at::AutoGradMode grad(kinds.differentiable > 0);
  const Tensors wide = leaves_of(inputs, kinds, /*wider=*/true);
  Tensors gradients;
  if (kinds.differentiable > 0) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& y : reference(leaves_of(inputs, kinds, false))) {
      gradients.push_back(gradient_for(y));
    }
  }
  const Tensors exact = exact_results(reference, wide, gradients);
  const Tensors ours = results_of(custom, leaves_of(inputs, kinds, false), gradients);
  const Tensors theirs = results_of(reference, leaves_of(inputs, kinds, false), gradients);
  KernelComparison found{.custom = ours.size() == exact.size()};
  for (size_t i = 0; found.custom && i < exact.size(); ++i) {
    const double error = error_of(ours[i], exact[i]);
    found.apart = std::max(found.apart, error);
    const double allowed = std::max(tolerance_of(inputs[0].scalar_type()), 2 * error_of(theirs[i], exact[i]));
    found.custom = found.custom && error <= allowed;  // false for a NaN
  }
  if (!found.custom) return found;
  const Tensors leaves = leaves_of(inputs, kinds, false);
  // In turns, the best time of each: a change of clock speed affects both.
  found.custom_ms = found.reference_ms = 1e30;
  for (int turn = 0; turn < 5; ++turn) {
    const auto best = [&](double& ms, const OpImpl& impl) {
      ms = std::min(ms, options.milliseconds([&] { results_of(impl, leaves, gradients); }));
    };
    best(found.reference_ms, reference);
    best(found.custom_ms, custom);
  }
  found.custom = !options.time_counts || kinds.replicated || found.custom_ms < found.reference_ms;
  return found;
}

}  // namespace

bool computes_exact_results() noexcept { return is_exact; }

/// Compares; if a large batch leaves too little memory for that, retries with fewer elements.
KernelComparison compare_kernels(const Tensors& inputs, const KernelAutotuner::Inputs& kinds, const OpImpl& custom,
                                 const OpImpl& reference, const KernelAutotuner::Options& options) {
  constexpr int64_t kMostElements = KernelAutotuner::kMostElements;
  for (int64_t most = kinds.whole ? std::numeric_limits<int64_t>::max() : kMostElements;;) {
    try {
      return compare(parts_of(inputs, kinds, most), kinds, custom, reference, options);
    } catch (const c10::OutOfMemoryError&) {
      if (most < kMostElements / 64) throw;
      most = std::min(most / 8, kMostElements);
    }
  }
}

}  // namespace gputrain::ops
