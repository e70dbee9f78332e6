#include "gputrain/setup/trial_step.hpp"

#include "gputrain/device/allocation_meter.hpp"
#include "gputrain/device/offload.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/ops/frozen_linear.hpp"
#include "gputrain/setup/training_loop.hpp"

namespace gputrain::app {
namespace {

class KeepLoss final : public train::Hook {
 public:
  train::Stop after_step(train::Progress&, const train::StepResult& result, bool) override {
    loss = result.loss_sum.item<double>() / train::divisor_of_loss(result.weight);
    return train::Stop::none;
  }
  double loss = 0;
};

}  // namespace

TrialStep take_trial_step(const Job& job, TrainingSetup& setup, int64_t samples, int64_t micro_batches) {
  const train::Plan plan = setup.plan;
  setup.plan.batch = {.global_batch = samples * micro_batches * setup.context.groups.mesh().samples(),
                      .micro_batch = samples,
                      .accumulation = micro_batches};
  JobSpec spec = job.spec();
  spec.data.num_workers.value = 0;  // workers would hold memory that does not belong to the step
  KeepLoss hook;
  train::Progress progress;
  device::synchronize(setup.context.device);
  device::give_back_offload_memory();
  const ops::GpuMemoryScope as_on_gpus;
  const device::AllocationMeter meter;
  {
    TrainingLoop loop(spec, setup, {}, [] {});
    loop.run(progress, {&hook}, 1);
  }
  setup.plan = plan;
  return {.peak_bytes = meter.peak_bytes(), .host_bytes = device::offload_bytes(), .loss = hook.loss};
}

}  // namespace gputrain::app
