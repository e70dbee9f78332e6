#include "gputrain/optim/gradients.hpp"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "gputrain/ops/flat_update.hpp"

namespace gputrain::optim {
namespace {

/// Returns the 2-norm as a double. A float sum of millions of squares loses digits (the plain norm of 20 million equal
/// floats is 1.4 % off), so short rows are summed in float and the rows' norms in double.
at::Tensor norm_of(const at::Tensor& flat) {
  constexpr int64_t kRow = 512;
  if (flat.numel() == 0) return at::zeros({}, flat.options().dtype(at::kDouble));
  const auto type = flat.scalar_type() == at::kBFloat16 ? std::optional(at::kFloat) : std::nullopt;
  const int64_t whole = flat.numel() / kRow * kRow;
  // ATen widens values of 16 bits before it sums them: some at a time, or they would take twice as much memory again.
  const int64_t most = type ? int64_t{1} << 20 : whole;
  std::vector<at::Tensor> norms;
  for (int64_t begin = 0; begin < whole; begin += most) {
    const at::Tensor rows = flat.narrow(0, begin, std::min(most, whole - begin)).view({-1, kRow});
    norms.push_back(at::linalg_vector_norm(rows, 2, {1}, /*keepdim=*/false, type));
  }
  const at::Tensor rest = flat.narrow(0, whole, flat.numel() - whole);
  norms.push_back(at::linalg_vector_norm(rest, 2, {0}, /*keepdim=*/true, type));
  return at::linalg_vector_norm(at::cat(norms).to(at::kDouble));
}

at::Tensor norm_of(const std::vector<at::Tensor>& pieces) {
  if (pieces.size() == 1) return norm_of(pieces[0]);
  std::vector<at::Tensor> norms{at::zeros({}, pieces.at(0).options().dtype(at::kDouble))};
  for (const at::Tensor& piece : pieces) norms.push_back(norm_of(piece));
  return at::linalg_vector_norm(at::stack(norms));
}

/// Returns the sum of squares by our own kernels; undefined if KernelAutotuner does not take them.
at::Tensor square_on_gpu(const std::vector<at::Tensor>& pieces) {
  at::Tensor all;
  for (const at::Tensor& piece : pieces) {
    const at::Tensor square = ops::square_sum(piece);
    if (!square.defined()) return {};
    all = all.defined() ? all.add_(square) : square;
  }
  return all;
}

/// Measures by our own kernels, if KernelAutotuner takes them.
std::optional<GradientReport> measure_on_gpu(const std::vector<at::Tensor>& pieces, const GradientOptions& options) {
  const at::Tensor square = square_on_gpu(pieces);
  if (!square.defined()) return std::nullopt;
  if (options.all_reduce_sum) options.all_reduce_sum(square);
  const ops::GradientScalars scalars = ops::gradient_scalars(square, options.scale, options.max_norm.value_or(0));
  GradientReport report{.norm = scalars.norm, .found_inf = scalars.found_inf};
  if (options.scale || options.max_norm) report.divisor = scalars.divisor;
  return report;
}

}  // namespace

GradientReport measure_gradient(const std::vector<at::Tensor>& pieces, const GradientOptions& options) {
  if (const auto report = measure_on_gpu(pieces, options)) return *report;
  GradientReport report{.norm = norm_of(pieces)};
  if (options.all_reduce_sum) {
    const at::Tensor square = report.norm.square();
    options.all_reduce_sum(square);
    report.norm = square.sqrt();
  }
  // Squares never cancel: the norm is finite exactly if every element is finite (and the squares do not overflow).
  report.found_inf = report.norm.isfinite().logical_not().to(at::kFloat).view({1});
  std::optional<at::Tensor> divisor;
  if (options.scale) {
    divisor = options.scale->to(at::kDouble);
    report.norm = report.norm.div(*divisor);
  }
  if (options.max_norm) {
    const at::Tensor excess = report.norm.add(1e-6).div(*options.max_norm).clamp_min(1);
    divisor = divisor ? divisor->mul(excess) : excess;
  }
  if (!divisor) return report;
  if (pieces.at(0).scalar_type() == at::kDouble) {
    for (const at::Tensor& piece : pieces) piece.div_(*divisor);
  } else {
    report.divisor = divisor->to(at::kFloat).view({1});
  }
  return report;
}

}  // namespace gputrain::optim
