#include "gputrain/setup/fixed_memory.hpp"

#include <algorithm>

#include "gputrain/monitor/format.hpp"
#include "gputrain/optim/state_on_host.hpp"

namespace gputrain::app {
namespace {

int64_t nbytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

std::string FixedMemory::text() const {
  return "weights " + monitor::bytes(weights()) +
         (borrowed > 0 ? " and " + monitor::bytes(borrowed) + " for the first stage's embedding" : "") +
         (working_copy > 0 ? " and 16-bit copy " + monitor::bytes(working_copy) : "") + "  grads " +
         monitor::bytes(gradients) + "  optimizer " + monitor::bytes(optimizer_state) +
         (state_on_host > 0 ? " and on the host " + monitor::bytes(state_on_host) : "");
}

FixedMemory fixed_memory(const BuiltModel& built, const OptimizerStack& optimizer_stack) {
  const device::Arena& arena = *built.arena;
  FixedMemory memory{.parameters = nbytes(arena.kept_values()), .gradients = nbytes(arena.kept_gradients())};
  if (built.pipeline) memory.borrowed = built.pipeline->borrowed_bytes();
  for (const at::Tensor& flat : arena.frozen_values()) memory.frozen += nbytes(flat);
  if (arena.working_copy() && !arena.keeps_owned_values_only())
    memory.working_copy = nbytes(arena.working_copy()->tensor());
  for (const at::Tensor& tensor : optimizer_stack.optimizer->state().large()) memory.optimizer_state += nbytes(tensor);
  memory.state_on_host = optimizer_stack.optimizer->bytes_on_host();
  memory.optimizer_state -= memory.state_on_host;
  if (const int64_t numel = arena.owned_numel(); memory.state_on_host > 0)
    memory.optimizer_state += memory.state_on_host / numel * optim::state_on_device(numel);
  built.model->each_buffer(
      [&](const std::string&, const nn::Buffer& buffer) { memory.buffers += nbytes(buffer.value); });
  return memory;
}

int64_t batch_bytes(const data::Dataset& dataset, int64_t micro_batch) {
  return static_cast<int64_t>(dataset.layout().bytes()) * micro_batch;
}

int64_t batches_ahead(const JobSpec& spec, const train::BatchPlan& batch) {
  return std::max(spec.data.prefetch_factor, batch.accumulation);
}

}  // namespace gputrain::app
