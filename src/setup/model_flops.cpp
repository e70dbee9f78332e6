#include "gputrain/setup/model_flops.hpp"

#include <ATen/ops/tensor.h>

#include "gputrain/device/peak_rates.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::app {

train::ModelFlops model_flops(const JobSpec& spec, TrainingSetup& setup) {
  auto& context = setup.context;
  const double mine = device::peak_rate(device::facts_of(context.device).name, spec.precision).value_or(0);
  const at::Tensor all = context.groups.control().all_gather(at::tensor({mine}, at::kDouble), "peak rates");
  double sum = 0;
  for (int64_t rank = 0; rank < all.numel(); ++rank) {
    const double peak = all.const_data_ptr<double>()[rank];
    if (peak == 0) return {};
    sum += peak;
  }
  return {.per_sample = setup.built.model->flops_per_sample(), .peak_per_second = sum};
}

}  // namespace gputrain::app
