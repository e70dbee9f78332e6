#include <algorithm>
#include <utility>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/optimizer.hpp"
#include "gputrain/ops/flat_update.hpp"
#include "launching.hpp"

namespace gputrain::ops {

/// The launches only; the caller has chosen.
struct FlatLaunch {
  static cuda::Update common(const FlatUpdate& update, const at::Tensor& values, const at::Tensor& gradients,
                             const at::Tensor& copy, const UpdateScalars& scalars) {
    return {.element = cuda::element_of(values),
            .values = cuda::write(values),
            .gradients = cuda::read(gradients),
            .working = cuda::write(copy),
            .working_element = copy.defined() ? cuda::element_of(copy) : cuda::Element::bf16,
            .stretches = static_cast<const cuda::Stretch*>(update.table_.const_data_ptr()),
            .count = static_cast<int>(update.stretches_.size()),
            .blocks = update.blocks_,
            .lr = cuda::read<float>(scalars.lr),
            .divisor = scalars.divisor ? cuda::read<float>(*scalars.divisor) : nullptr,
            .found_inf = scalars.found_inf ? cuda::read<float>(*scalars.found_inf) : nullptr};
  }

  static void adamw(const FlatUpdate& update, const AdamWBuffers& b, const UpdateScalars& scalars,
                    const AdamWRule& rule) {
    cuda::adamw({.common = common(update, b.values, b.gradients, b.copy, scalars),
                 .averages = cuda::element_of(b.first),
                 .first = cuda::write(b.first),
                 .second = cuda::write(b.second),
                 .step = cuda::read<float>(b.step),
                 .beta1 = rule.beta1,
                 .beta2 = rule.beta2,
                 .eps = static_cast<float>(rule.eps)},
                cuda::current_stream());
    cuda::check_launches();
  }

  static void sgd(const FlatUpdate& update, const SgdBuffers& b, const UpdateScalars& scalars, const SgdRule& rule) {
    cuda::sgd({.common = common(update, b.values, b.gradients, b.copy, scalars),
               .velocity = cuda::write<float>(b.velocity),
               .momentum = static_cast<float>(rule.momentum),
               .nesterov = rule.nesterov},
              cuda::current_stream());
    cuda::check_launches();
  }

  /// The arguments of a comparison of both ways.
  struct Trial {
    FlatUpdate update;      // one stretch over all values
    UpdateScalars scalars;  // those of a finite gradient: with others neither way would do anything
  };
  /// Returns the trial that the first comparison creates.
  static const Trial& trial(std::optional<Trial>& kept, const FlatUpdate& update, const at::Tensor& values,
                            const UpdateScalars& scalars) {
    if (kept) return *kept;
    const auto number = [](const std::optional<at::Tensor>& like, double value) {
      return like ? std::optional(at::full_like(*like, value)) : std::nullopt;
    };
    const FlatStretch all{.begin = 0, .end = values.numel(), .weight_decay = update.stretches_.front().weight_decay};
    kept.emplace(Trial{FlatUpdate({all}), {scalars.lr, number(scalars.found_inf, 0), number(scalars.divisor, 1)}});
    kept->update.upload(values.device());
    return *kept;
  }
};

FlatUpdate::FlatUpdate(std::vector<FlatStretch> stretches) : stretches_(std::move(stretches)) {}

bool FlatUpdate::takes(const at::Tensor& values, const at::Tensor& gradients) {
  const at::ScalarType type = values.scalar_type();
  const bool is_stored = type == at::kFloat || type == at::kBFloat16;
  if (!gpu::is_here(values) || !is_stored || gradients.scalar_type() != type || stretches_.empty()) return false;
  const auto is_whole = [](const FlatStretch& stretch) {
    const auto places = {stretch.begin, stretch.end, stretch.values_shift, stretch.gradients_shift,
                         stretch.rounded.begin};
    return std::ranges::all_of(places, [](int64_t place) { return place % cuda::kStretchAlignment == 0; });
  };
  if (!std::all_of(stretches_.begin(), stretches_.end(), is_whole)) return false;
  if (!table_.defined()) upload(values.device());
  return true;
}

void FlatUpdate::upload(at::Device device) {
  const auto bytes = static_cast<int64_t>(stretches_.size() * sizeof(cuda::Stretch));
  const at::Tensor table = at::empty({bytes}, at::kByte);
  auto* entries = static_cast<cuda::Stretch*>(table.mutable_data_ptr());
  blocks_ = 0;
  for (const FlatStretch& stretch : stretches_) {
    *entries++ = {.begin = stretch.begin,
                  .end = stretch.end,
                  .first_block = blocks_,
                  .decay = static_cast<float>(stretch.weight_decay),
                  .lr_factor = static_cast<float>(stretch.lr_factor),
                  .since = static_cast<float>(stretch.since),
                  .values_shift = stretch.values_shift,
                  .gradients_shift = stretch.gradients_shift,
                  .key = stretch.rounded.key,
                  .element = stretch.rounded.begin};
    blocks_ += cuda::blocks_of(stretch.end - stretch.begin);
  }
  table_ = table.to(device);
}

namespace {

/// Returns the first `count` elements, on which both ways are compared; undefined stays undefined.
at::Tensor first_of(const at::Tensor& flat, int64_t count) {
  return flat.defined() && flat.numel() > count ? flat.narrow(0, 0, count) : flat;
}

/// Removes undefined tensors.
Tensors changed(Tensors tensors) {
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return tensors;
}

}  // namespace

bool FlatUpdate::adamw(const AdamWBuffers& b, const UpdateScalars& scalars, const AdamWRule& rule) {
  if (!takes(b.values, b.gradients)) return false;
  std::optional<FlatLaunch::Trial> kept;
  const OpImpl custom = [&](const Tensors& t) {
    const auto& trial = FlatLaunch::trial(kept, *this, t[0], scalars);
    FlatLaunch::adamw(trial.update, {t[0], t[1], t[2], t[3], b.step, t[4]}, trial.scalars, rule);
    return changed({t[0], t[2], t[3], t[4]});
  };
  const OpImpl reference = [&](const Tensors& t) {
    const UpdateScalars& of = FlatLaunch::trial(kept, *this, t[0], scalars).scalars;
    // In fp32. Values of 16 bits are rounded to the nearest, which is as near as our rounding on average.
    Tensors wide;
    for (size_t i = 0; i < 4; ++i) wide.push_back(t[i].to(at::kFloat));
    at::_fused_adamw_({wide[0]}, {wide[1]}, {wide[2]}, {wide[3]}, {}, {b.step}, of.lr, rule.beta1, rule.beta2,
                      stretches_.front().weight_decay, rule.eps, /*amsgrad=*/false, /*maximize=*/false, of.divisor,
                      of.found_inf);
    for (const size_t i : {size_t{0}, size_t{2}, size_t{3}})
      if (!wide[i].is_same(t[i])) t[i].copy_(wide[i]);
    if (t[4].defined()) t[4].copy_(t[0]);
    return changed({t[0], t[2], t[3], t[4]});
  };
  const int64_t count = b.first.numel();
  const Tensors inputs{first_of(b.values, count), first_of(b.gradients, count), b.first, b.second,
                       first_of(b.copy, count)};
  const KernelAutotuner::Inputs kinds{.batched = 5, .differentiable = 0, .replicated = true};
  if (!kernel_autotuner().use_custom_kernel("adamw", inputs, kinds, custom, reference)) return false;
  FlatLaunch::adamw(*this, b, scalars, rule);
  return true;
}

bool FlatUpdate::sgd(const SgdBuffers& b, const UpdateScalars& scalars, const SgdRule& rule) {
  if (b.values.scalar_type() != at::kFloat || !takes(b.values, b.gradients)) return false;
  std::optional<FlatLaunch::Trial> kept;
  const OpImpl custom = [&](const Tensors& t) {
    const auto& trial = FlatLaunch::trial(kept, *this, t[0], scalars);
    FlatLaunch::sgd(trial.update, {t[0], t[1], t[2], t[3]}, trial.scalars, rule);
    return changed({t[0], t[2], t[3]});
  };
  const OpImpl reference = [&](const Tensors& t) {
    const UpdateScalars& of = FlatLaunch::trial(kept, *this, t[0], scalars).scalars;
    at::_fused_sgd_({t[0]}, {t[1]}, t[2].defined() ? Tensors{t[2]} : Tensors{}, stretches_.front().weight_decay,
                    rule.momentum, of.lr, /*dampening=*/0, rule.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false, of.divisor, of.found_inf);
    if (t[3].defined()) t[3].copy_(t[0]);
    return changed({t[0], t[2], t[3]});
  };
  const int64_t count = stretches_.back().end;
  const Tensors inputs{first_of(b.values, count), first_of(b.gradients, count), b.velocity, first_of(b.copy, count)};
  const KernelAutotuner::Inputs kinds{.batched = 4, .differentiable = 0, .replicated = true};
  if (!kernel_autotuner().use_custom_kernel(rule.nesterov ? "sgd nesterov" : "sgd", inputs, kinds, custom, reference))
    return false;
  FlatLaunch::sgd(*this, b, scalars, rule);
  return true;
}

at::Tensor square_sum(const at::Tensor& flat) {
  const bool is_stored = flat.scalar_type() == at::kFloat || flat.scalar_type() == at::kBFloat16;
  if (!gpu::is_here(flat) || !is_stored || !flat.is_contiguous() ||
      reinterpret_cast<uintptr_t>(flat.const_data_ptr()) % 16 != 0) {
    return {};
  }
  const OpImpl custom = [](const Tensors& t) {
    const int parts = 4 * cuda::multiprocessors();
    const auto doubles = t[0].options().dtype(at::kDouble);
    const at::Tensor partials = at::empty({parts}, doubles), sum = at::empty({}, doubles);
    cuda::square_sums(cuda::element_of(t[0]), cuda::read(t[0]), t[0].numel(), cuda::write<double>(partials), parts,
                      cuda::current_stream());
    cuda::total(cuda::read<double>(partials), parts, cuda::write<double>(sum), cuda::current_stream());
    cuda::check_launches();
    return Tensors{sum};
  };
  const OpImpl reference = [](const Tensors& t) {
    return Tensors{at::linalg_vector_norm(t[0], 2, {}, false, at::kDouble).square()};
  };
  const KernelAutotuner::Inputs kinds{.batched = 1, .differentiable = 0, .replicated = true};
  return kernel_autotuner().use_custom_kernel("square_sum", {flat}, kinds, custom, reference) ? custom({flat})[0]
                                                                                              : at::Tensor();
}

GradientScalars gradient_scalars(const at::Tensor& square, const std::optional<at::Tensor>& scale, double max_norm) {
  const auto floats = square.options().dtype(at::kFloat);
  GradientScalars scalars{
      .norm = at::empty({}, square.options()), .found_inf = at::empty({1}, floats), .divisor = at::empty({1}, floats)};
  cuda::gradient_scalars({.square = cuda::read<double>(square),
                          .scale = scale ? cuda::read<float>(*scale) : nullptr,
                          .max_norm = max_norm,
                          .norm = cuda::write<double>(scalars.norm),
                          .found_inf = cuda::write<float>(scalars.found_inf),
                          .divisor = cuda::write<float>(scalars.divisor)},
                         cuda::current_stream());
  cuda::check_launches();
  return scalars;
}

}  // namespace gputrain::ops
