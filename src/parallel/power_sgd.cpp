#include "gputrain/parallel/power_sgd.hpp"

#include <tuple>

#include <ATen/ops/addmm.h>
#include <ATen/ops/all.h>
#include <ATen/ops/any.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::parallel {
namespace {

struct Sizes {
  int64_t rows = 0, columns = 0;
};

/// Returns a tensor as a matrix in memory order, one row per element of its first dim; {} if it has no such form.
Sizes as_matrix(const device::Segment& segment) {
  if (segment.sizes.size() < 2 || segment.numel == 0) return {};
  const int64_t rows = segment.sizes.front();
  return segment.strides.front() * rows == segment.numel ? Sizes{rows, segment.numel / rows} : Sizes{};
}

bool is_worth_it(const Sizes& sizes, int64_t rank) {
  return 2 * (2 * sizes.rows + sizes.columns) * rank < sizes.rows * sizes.columns;
}

at::Tensor first_factor(const Sizes& sizes, int64_t rank, uint64_t seed, uint64_t stream,
                        const at::TensorOptions& options) {
  RandomStream random(seed, stream);
  const at::Tensor factor = at::empty({sizes.columns, rank}, at::TensorOptions().dtype(at::kDouble));
  auto* values = factor.mutable_data_ptr<double>();
  for (int64_t i = 0; i < factor.numel(); ++i) values[i] = random.uniform(-1, 1);
  return factor.to(options);
}

}  // namespace

PowerSgd::PowerSgd(const device::Arena& arena, int64_t rank, uint64_t seed)
    : gradients_(arena.gradients()), rank_(rank) {
  GPUTRAIN_ASSERT(gradients_.defined(), "PowerSGD needs whole gradients");
  for (const device::Segment& segment : arena.segments()) {
    const Sizes sizes = as_matrix(segment);
    if (!is_worth_it(sizes, rank)) continue;
    if (!segment.order().empty()) ++reordered_;
    const at::Tensor gradient =
        at::as_strided(gradients_, {sizes.rows, sizes.columns}, {sizes.columns, 1}, segment.offset);
    matrices_.push_back({.name = segment.name,
                         .range = {.begin = segment.offset, .end = segment.offset + segment.padded},
                         .gradient = gradient,
                         .error = at::zeros_like(gradient),
                         .right = first_factor(sizes, rank, seed, stable_hash(segment.name), gradients_.options())});
  }
}

PowerSgd::State PowerSgd::state() const {
  State state;
  for (const Matrix& matrix : matrices_) {
    state.errors.emplace_back("error." + matrix.name, matrix.error);
    state.factors.emplace_back("factor." + matrix.name, matrix.right);
  }
  return state;
}

int64_t PowerSgd::bytes() const noexcept {
  int64_t elements = gradients_.numel();
  for (const Matrix& matrix : matrices_) {
    elements += (2 * matrix.gradient.size(0) + matrix.gradient.size(1)) * rank_ - matrix.range.size();
  }
  return elements * static_cast<int64_t>(gradients_.itemsize());
}

PowerSgd::Exchange::Exchange(PowerSgd& all, const device::Range& range) {
  std::vector<device::Range> others;
  int64_t left = 0, right = 0, other = 0, reached = range.begin;
  const auto pass_over = [&](int64_t until) {
    if (until > reached) others.push_back({.begin = reached, .end = until});
    other += until - reached;
  };
  std::vector<Matrix*> matrices;
  for (Matrix& matrix : all.matrices_) {
    if (matrix.range.begin < range.begin || matrix.range.begin >= range.end) continue;
    pass_over(matrix.range.begin);
    reached = matrix.range.end;
    left += matrix.gradient.size(0) * all.rank_;
    right += matrix.gradient.size(1) * all.rank_;
    matrices.push_back(&matrix);
  }
  pass_over(range.end);
  first_ = at::empty({left + other}, all.gradients_.options());
  second_ = at::empty({left + right}, all.gradients_.options());
  int64_t at_left = 0, at_second = 0;
  const auto next_of_second = [&](int64_t size) {
    at_second += size * all.rank_;
    return second_.narrow(0, at_second - size * all.rank_, size * all.rank_).view({size, all.rank_});
  };
  for (Matrix* matrix : matrices) {
    const int64_t rows = matrix->gradient.size(0), columns = matrix->gradient.size(1), rank = all.rank_;
    factors_.push_back({.of = matrix,
                        .sum = first_.narrow(0, at_left, rows * rank).view({rows, rank}),
                        .left = next_of_second(rows),
                        .right = next_of_second(columns)});
    at_left += rows * rank;
  }
  for (const device::Range& each : others) {
    others_.emplace_back(all.gradients_.narrow(0, each.begin, each.size()), first_.narrow(0, at_left, each.size()));
    at_left += each.size();
  }
}

void PowerSgd::Exchange::start(comm::Group& group, const std::string& name) {
  for (Factors& factors : factors_) {
    factors.of->gradient.add_(factors.of->error);
    at::mm_out(factors.sum, factors.of->gradient, factors.of->right);
  }
  for (const auto& [gradient, sent] : others_) sent.copy_(gradient);
  pending_ = group.all_reduce_sum(first_, name);
}

void PowerSgd::Exchange::turn(comm::Group& group, const std::string& name) {
  pending_.wait();
  is_finite_ = at::isfinite(first_).all();
  for (const auto& [gradient, sent] : others_) gradient.copy_(sent);
  for (Factors& factors : factors_) {
    const at::Tensor own_left = std::get<0>(at::linalg_qr(factors.sum));
    group.rank() == 0 ? factors.left.copy_(own_left) : factors.left.zero_();
    at::mm_out(factors.right, factors.of->gradient.t(), own_left);
    factors.own_right = factors.right.clone();
  }
  if (second_.numel() > 0) pending_ = group.all_reduce_sum(second_, name);
}

void PowerSgd::Exchange::finish(const at::Tensor& all_are_finite) {
  pending_.wait();
  for (Factors& factors : factors_) {
    const auto& [of, sum, left, right, own_right] = factors;
    of->error.copy_(at::where(all_are_finite, at::addmm(of->gradient, left, own_right.t(), 1, -1), of->error));
    // An all-zero gradient, of an unused parameter, is no starting point for the next step.
    of->right.copy_(at::where(all_are_finite.logical_and(right.any()), right, of->right));
    at::mm_out(of->gradient, left, right.t());
  }
}

}  // namespace gputrain::parallel
