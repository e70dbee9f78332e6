#include "gputrain/optim/grad_scaler.hpp"

#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace gputrain::optim {

GradScaler::GradScaler(at::Device device, const Options& options)
    : options_(options),
      scale_(at::full({}, options.initial_scale, at::TensorOptions().dtype(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions().dtype(at::kInt).device(device))) {}

void GradScaler::update(const at::Tensor& found_inf) {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  scale_.clamp_min_(kFloor);  // a scale of zero would make all later gradients NaN
}

GradScaler::State GradScaler::state() const {
  return {.scale = scale_.item<float>(), .growth_tracker = growth_tracker_.item<int>()};
}

void GradScaler::restore(const State& state) {
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
}

}  // namespace gputrain::optim
