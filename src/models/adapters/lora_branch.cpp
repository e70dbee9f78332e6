#include "lora_branch.hpp"

#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::models {
namespace {

struct Pair {
  at::Tensor a, b;  // [rank, in], [out, rank]
};

/// Returns the largest part of rank r, B A = W: its singular values are shared by both (PiSSA, Meng et al.,
/// arXiv:2404.02948).
Pair split_evenly(const at::Tensor& u, const at::Tensor& s, const at::Tensor& vh, int64_t rank) {
  const at::Tensor root = s.narrow(0, 0, rank).sqrt();
  return {at::mul(root.unsqueeze(1), vh.narrow(0, 0, rank)), at::mul(u.narrow(1, 0, rank), root)};
}

Pair principal(const at::Tensor& weight, int64_t rank) {
  const auto [u, s, vh] = at::linalg_svd(weight, /*full_matrices=*/false);
  return split_evenly(u, s, vh, rank);
}

/// Returns nearly principal(), by iterations on a space of `rank` dimensions (Halko et al., arXiv:0909.4061,
/// algorithm 4.4).
Pair nearly_principal(const at::Tensor& weight, int64_t rank) {
  constexpr int kIterations = 16;
  const auto basis_of = [](const at::Tensor& matrix) { return std::get<0>(at::linalg_qr(matrix)); };
  const at::Tensor drawn =
      at::randn({weight.size(1), rank}, at::detail::createCPUGenerator(/*seed=*/0), weight.options().device(at::kCPU));
  at::Tensor basis = basis_of(at::mm(weight, drawn.to(weight.device())));
  for (int i = 0; i < kIterations; ++i) basis = basis_of(at::mm(weight, basis_of(at::mm(weight.t(), basis))));
  const auto [u, s, vh] = at::linalg_svd(at::mm(basis.t(), weight), /*full_matrices=*/false);
  return split_evenly(at::mm(basis, u), s, vh, rank);
}

/// Returns the first rows of R and columns of Q in W = Q R (OLoRA, Büyükakyüz, arXiv:2406.01775).
Pair orthonormal(const at::Tensor& weight, int64_t rank) {
  const auto [q, r] = at::linalg_qr(weight);
  return {r.narrow(0, 0, rank), q.narrow(1, 0, rank)};
}

}  // namespace

LoraBranch::LoraBranch(const nn::Context& context, const nn::Linear& layer, const LoraSettings& settings,
                       const LoraSize& size)
    : Branch(context),
      layer_(layer),
      size_(size),
      init_(settings.init),
      rslora_(settings.rslora),
      scale_(settings.scale(size)),
      dropout_(settings.dropout) {
  const int64_t in = layer.options().in, out = layer.options().out, rank = size.rank;
  // nn::Linear starts with PEFT's usual values: Kaiming's uniform ones with a = sqrt(5).
  std::optional<nn::Init> a_init;
  if (init_ == "gaussian") a_init = nn::Init::normal(1 / static_cast<double>(rank));
  a_ = add_child<nn::Linear>("lora_A", context,
                             nn::Linear::Options{.in = in, .out = rank, .bias = false, .weight_init = a_init});
  b_ = add_child<nn::Linear>(
      "lora_B", context, nn::Linear::Options{.in = rank, .out = out, .bias = false, .weight_init = nn::Init::zeros()});
  if (settings.dora)
    magnitude_ = register_parameter("lora_magnitude_vector", {out}, nn::Init::ones(), nn::ParameterRole::weight);
  if (init_ == "kaiming" || init_ == "gaussian") return;
  const auto kept = at::TensorOptions().dtype(context.policy.master).device(context.device);
  a_start_ = register_buffer("lora_A_start", at::zeros({rank, in}, kept), nn::Init::as_given());
  b_start_ = register_buffer("lora_B_start", at::zeros({out, rank}, kept), nn::Init::as_given());
}

/// Returns the matrices in this type. Where ranks share out values, the trained ones have memory in the compute type
/// while the model computes, else in the master type.
LoraBranch::Factors LoraBranch::factors(at::ScalarType type) const {
  const at::Tensor a = ops::operand(a_->weight(), type), b = ops::operand(b_->weight(), type);
  if (!starts_from_weight()) return {a, b};
  return {at::cat({a, ops::cast(a_start_, type)}), at::cat({b, ops::cast(b_start_, type)}, 1)};
}

at::Tensor LoraBranch::add_to(const at::Tensor& y, const at::Tensor& x) const {
  if (is_zero_) return y;
  const bool drops = is_training() && dropout_ > 0;
  const at::Tensor read = drops ? ops::dropout(x, dropout_) : x;
  const at::ScalarType type = context().policy.compute;
  const auto [a, b] = factors(type);
  const at::Tensor narrow = starts_from_weight() ? at::linear(ops::cast(read, type), a) : a_->forward(read);
  if (!magnitude_.defined()) {
    // One product includes the scale and the sum, instead of a pass over y for each.
    const at::Tensor sum = at::addmm(y.reshape({-1, y.size(-1)}), narrow.reshape({-1, narrow.size(-1)}), b.t(),
                                     /*beta=*/1, /*alpha=*/scale_);
    return at::_unsafe_view(sum, y.sizes());
  }
  const at::Tensor factor = at::div(ops::cast(magnitude_, context().policy.master), row_norms());
  const auto scaled = [&](const at::Tensor& tensor, const at::Tensor& by) {
    return at::mul(tensor, ops::cast(by, type));
  };
  const at::Tensor& bias = layer_.bias();
  const at::Tensor base = drops            ? layer_.product(read, /*bias=*/{})
                          : bias.defined() ? at::sub(y, ops::cast(bias, y.scalar_type()))
                                           : y;
  return at::add(at::add(y, scaled(base, at::sub(factor, 1))), scaled(at::linear(narrow, b), at::mul(factor, scale_)));
}

std::optional<ops::AdaptedLinear> LoraBranch::low_rank(const at::Tensor& x) const {
  if (magnitude_.defined()) return std::nullopt;
  const bool drops = is_training() && dropout_ > 0;
  // Parameters themselves keep gradients in the master type.
  const Factors kept = starts_from_weight() ? factors(context().policy.compute) : Factors{a_->weight(), b_->weight()};
  return ops::AdaptedLinear{
      .a = kept.a, .b = kept.b, .scale = scale_, .dropped = drops ? ops::dropout(x, dropout_) : at::Tensor()};
}

/// Returns the length of each row of W + scale B A [out], in the master type, without the sum itself.
at::Tensor LoraBranch::row_norms() const {
  const at::NoGradGuard no_grad;
  const at::ScalarType master = context().policy.master;
  const at::Tensor weight = layer_.matrix(context().policy.compute);
  const Factors kept = factors(context().policy.compute);
  const at::Tensor a = ops::cast(kept.a, master), b = ops::cast(kept.b, master);
  const at::Tensor weight_a = at::mm(weight, ops::cast(a, weight.scalar_type()).t()).to(master);  // [out, rank]
  const at::Tensor own = at::linalg_vector_norm(weight, 2, at::IntArrayRef{1}, /*keepdim=*/false, master).square(),
                   crossed = at::mul(weight_a, b).sum(1), added = at::mul(at::mm(b, at::mm(a, a.t())), b).sum(1);
  return at::add(at::add(own, crossed, 2 * scale_), added, scale_ * scale_).clamp_min(0).sqrt();
}

at::Tensor LoraBranch::matrix() const {
  const at::NoGradGuard no_grad;
  const auto [a, b] = factors(context().policy.master);
  const at::Tensor added = at::mm(b, a).mul_(scale_);
  if (!magnitude_.defined()) return added;
  const at::Tensor weight = layer_.matrix(added.scalar_type()), sum = at::add(weight, added);
  const at::Tensor factor = at::div(magnitude_, at::linalg_vector_norm(sum, 2, at::IntArrayRef{1}));
  return at::sub(at::mul(sum, factor.unsqueeze(1)), weight);
}

void LoraBranch::clear() {
  b_->weight().detach().zero_();
  if (b_start_.defined()) b_start_.zero_();
  fit();
  is_zero_ = true;
}

void LoraBranch::fit() {
  if (magnitude_.defined()) magnitude_.detach().copy_(row_norms());
}

void LoraBranch::find_start() {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = layer_.matrix(a_start_.scalar_type());
  const auto find = init_ == "pissa" ? principal : init_ == "olora" ? orthonormal : nearly_principal;
  const auto [a, b] = find(weight, size_.rank);
  // B A is a part of W, and counts scale times: PiSSA shares that out too, OLoRA does not divide by it.
  const double share = init_ == "olora" ? 1 : 1 / std::sqrt(scale_);
  a_start_.copy_(at::mul(a, share));
  b_start_.copy_(at::mul(b, -share));
}

void LoraBranch::start() {
  const at::NoGradGuard no_grad;
  a_->weight().detach().copy_(a_start_);
  b_->weight().detach().copy_(b_start_.neg());
  a_start_.copy_(a_->weight());  // as the trained ones are rounded
  b_start_.copy_(b_->weight().neg());
}

LoraSize LoraBranch::size_in_files() const {
  if (!starts_from_weight()) return size_;
  return {.rank = 2 * size_.rank, .alpha = size_.alpha * (rslora_ ? std::sqrt(2.0) : 2.0)};
}

}  // namespace gputrain::models
