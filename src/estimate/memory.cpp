#include "gputrain/estimate/memory.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gputrain/core/numbers.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/state_on_host.hpp"
#include "gputrain/setup/compatibility.hpp"

namespace gputrain::app {
namespace {

struct Remedy {
  std::string set;
  std::string effect;
  int64_t saved = 0;
  bool copies = false;  // it takes time for copies to the host
  int change = 0;       // change of results: 0 none, 1 rounding, 2 another model or other inputs
};

/// Returns a divisor of the micro-batch that fits, at most half of it: all passes stay equally large.
int64_t smaller_micro_batch(const Memory& memory) {
  for (int64_t smaller = memory.micro_batch / 2; smaller > 1; --smaller) {
    if (memory.micro_batch % smaller == 0 && memory.total(smaller) <= memory.limit) return smaller;
  }
  return 1;
}

void add_micro_batch(std::vector<Remedy>& remedies, const JobSpec& spec, const TrainingSetup& setup,
                     const Memory& memory) {
  const auto& batch = setup.plan.batch;
  if (memory.micro_batch < 2) return;
  const int64_t micro = smaller_micro_batch(memory);
  const int64_t passes = ceil_divide(batch.global_batch, micro * setup.context.groups.mesh().samples());
  std::string set = fmt::format("train.micro_batch_size={}", micro);
  if (!spec.train.gradient_accumulation_steps.is_auto()) {
    set += fmt::format(" --set train.gradient_accumulation_steps={}", passes);
  }
  remedies.push_back({.set = set,
                      .effect = fmt::format("{} forward passes per step instead of {}; the global batch stays {}",
                                            passes, batch.accumulation, batch.global_batch),
                      .saved = memory.total() - memory.total(micro)});
}

/// Returns whether a run would accept the job after `change`.
template <class Change>
bool may_have(JobSpec spec, const Change& change) {
  change(spec);
  return broken_rules(features_of(spec)).empty();
}

void add_sharding(std::vector<Remedy>& remedies, const JobSpec& spec, const TrainingSetup& setup,
                  const Memory& memory) {
  const int64_t ranks = setup.context.groups.mesh().shards();
  const bool has_stages = setup.built.pipeline != nullptr;
  if (ranks == 1 || spec.parallel.shard == "parameters") return;
  const auto may_share = [&](const char* shard) {
    return may_have(spec, [shard](JobSpec& changed) { changed.parallel.shard = shard; });
  };
  const int64_t shared = memory.fixed.gradients + (spec.parallel.shard == "none" ? memory.fixed.optimizer_state : 0);
  const auto saved = [ranks](int64_t bytes) { return bytes - bytes / ranks; };
  if (has_stages && spec.parallel.shard == "none" && may_share("optimizer")) {
    remedies.push_back({.set = "parallel.shard=optimizer",
                        .effect = fmt::format("each of {} ranks keeps its part of the optimizer state", ranks),
                        .saved = saved(memory.fixed.optimizer_state),
                        .change = 1});
  }
  if (has_stages) return;
  if (spec.parallel.shard != "gradients" && may_share("gradients")) {
    remedies.push_back(
        {.set = "parallel.shard=gradients",
         .effect = fmt::format("each of {} ranks keeps its part of gradients and optimizer state", ranks),
         .saved = saved(shared),
         .change = 1});
  }
  if (!may_share("parameters")) return;
  const int64_t weights = memory.fixed.parameters + memory.fixed.working_copy;
  remedies.push_back({.set = "parallel.shard=parameters",
                      .effect = fmt::format("each of {} ranks keeps its part of the weights as well", ranks),
                      .saved = saved((spec.parallel.shard == "gradients" ? 0 : shared) + weights),
                      .change = 1});
}

/// Adds remedies that change only activations and data.
void add_passes(std::vector<Remedy>& remedies, const JobSpec& spec, const TrainingSetup& setup, const Memory& memory) {
  const int64_t micro = memory.micro_batch, activations = memory.activations.bytes(micro);
  if (memory.evaluates && spec.eval.batch_size && *spec.eval.batch_size > micro) {
    remedies.push_back({.set = fmt::format("eval.batch_size={}", micro),
                        .effect = "evaluation uses the micro-batch of training",
                        .saved = activations - activations * micro / *spec.eval.batch_size});
  }
  const int64_t least = std::max<int64_t>(1, setup.plan.batch.accumulation),
                ahead = batches_ahead(spec, setup.plan.batch);
  if (memory.data > 0 && ahead > least) {
    remedies.push_back({.set = fmt::format("data.prefetch_factor={}", least),
                        .effect = "fewer batches are read ahead",
                        .saved = memory.data - memory.data * least / ahead});
  }
  if (spec.train.activation_checkpointing != "block" &&
      may_have(spec, [](JobSpec& changed) { changed.train.activation_checkpointing = "block"; })) {
    remedies.push_back({.set = "train.activation_checkpointing=block",
                        .effect = "blocks are recomputed in the backward pass; a step takes a third longer",
                        .saved = activations / 2});
  }
}

/// Adds what keeps gradients and the state of the optimizer in fewer bits.
void add_narrower_state(std::vector<Remedy>& remedies, const JobSpec& spec, const Memory& memory) {
  const FixedMemory& fixed = memory.fixed;
  if (spec.optimizer.type.name == "adamw" &&
      may_have(spec, [](JobSpec& changed) { changed.optimizer.type = optim::catalog().with_defaults("adamw8bit"); })) {
    remedies.push_back({.set = "optimizer.type=adamw8bit",
                        .effect = "averages of the gradients in 8 bits",
                        .saved = fixed.optimizer_state * 3 / 4,
                        .change = 1});
  }
  if (!spec.optimizer.has_narrow_master() &&
      may_have(spec, [](JobSpec& changed) { changed.optimizer.master = "bf16"; })) {
    remedies.push_back({.set = "optimizer.master=bf16",
                        .effect = "weights and gradients in bf16, rounded stochastically",
                        .saved = fixed.parameters / 2 + fixed.working_copy + fixed.gradients / 2,
                        .change = 1});
  }
}

/// Counts the bytes of frozen matrices that model.quantize would pack, and of which it would leave a quarter.
int64_t bytes_to_pack(const TrainingSetup& setup) {
  int64_t bytes = 0;
  const auto units = setup.built.model->units();
  for (size_t i = 1; i + 1 < units.size(); ++i) {
    for (nn::Module* const module : units[i].modules) {
      module->each_parameter([&](const std::string&, const nn::Parameter& parameter) {
        if (!parameter.trainable && parameter.value.dim() == 2) bytes += static_cast<int64_t>(parameter.value.nbytes());
      });
    }
  }
  return bytes;
}

/// Adds what freezes a pretrained model, or packs a frozen one. `setup`, `memory`: null before the model is built.
void add_adapter(std::vector<Remedy>& remedies, const JobSpec& spec, const TrainingSetup* setup, const Memory* memory) {
  if (!spec.model.pretrained || spec.model.quantize) return;
  if (spec.model.adapter) {
    if (!may_have(spec, [](JobSpec& changed) { changed.model.quantize.emplace(); })) return;
    remedies.push_back({.set = "model.quantize.type=nf4",
                        .effect = "the frozen weights in 4 bits (QLoRA)",
                        .saved = setup != nullptr ? bytes_to_pack(*setup) * 3 / 4 : 0,
                        .change = 1});
    return;
  }
  const auto freeze = [](JobSpec& changed) { changed.model.adapter.emplace(); };
  if (!models::catalog().reads(spec.model.architecture).reads_tokens() || !may_have(spec, freeze)) return;
  const FixedMemory fixed = memory != nullptr ? memory->fixed : FixedMemory{};
  remedies.push_back({.set = "model.adapter.type=lora",
                      .effect = "an adapter is trained beside frozen weights (LoRA)",
                      .saved = fixed.gradients + fixed.optimizer_state + fixed.working_copy,
                      .change = 2});
  if (!may_have(spec, [&](JobSpec& changed) {
        freeze(changed);
        changed.model.quantize.emplace();
      }))
    return;
  remedies.push_back({.set = "model.adapter.type=lora --set model.quantize.type=nf4",
                      .effect = "the same beside weights in 4 bits (QLoRA)",
                      .saved = memory != nullptr ? remedies.back().saved + fixed.parameters / 2 : 0,
                      .change = 2});
}

/// Adds what moves memory to the host. On a CPU, where batches lie beside the model, nothing does.
void add_offload(std::vector<Remedy>& remedies, const JobSpec& spec, const TrainingSetup& setup, const Memory& memory) {
  if (memory.data > 0) return;
  const auto may_offload = [&](bool train::OffloadSpec::*what) {
    return !(spec.train.offload.*what) &&
           may_have(spec, [what](JobSpec& changed) { changed.train.offload.*what = true; });
  };
  if (may_offload(&train::OffloadSpec::activations)) {
    remedies.push_back({.set = "train.offload.activations=true",
                        .effect = "inputs of blocks wait in the host's memory, copied beside the computing",
                        .saved = memory.activations.bytes(memory.micro_batch) / 2,
                        .copies = true});
  }
  if (const int64_t numel = setup.built.arena->owned_numel();
      numel > 0 && may_offload(&train::OffloadSpec::optimizer)) {
    remedies.push_back(
        {.set = "train.offload.optimizer=true",
         .effect = "each update copies the optimizer's state from the host and back",
         .saved = memory.fixed.optimizer_state - memory.fixed.optimizer_state / numel * optim::state_on_device(numel),
         .copies = true});
  }
}

void add_precision(std::vector<Remedy>& remedies, const JobSpec& spec, const Memory& memory) {
  if (spec.precision == "bf16" || spec.precision == "fp16") return;
  const bool is_double = spec.precision == "fp64";
  remedies.push_back({.set = is_double ? "precision=fp32" : "precision=bf16",
                      .effect = is_double ? "everything takes half" : "most activations take half",
                      .saved = (is_double ? memory.total() : memory.activations.bytes(memory.micro_batch)) / 2,
                      .change = 1});
}

void add_shorter_inputs(std::vector<Remedy>& remedies, const TrainingSetup& setup, const Memory& memory) {
  const auto& layout = setup.datasets.train->layout();
  const int64_t tokens = layout.token_count(), activations = memory.activations.bytes(memory.micro_batch);
  if (tokens >= 2) {
    remedies.push_back({.set = fmt::format("data.text.max_length={}", tokens / 2),
                        .effect = fmt::format("sequences of {} tokens instead of {}", tokens / 2, tokens),
                        .saved = activations / 2,
                        .change = 2});
  } else if (layout.is_image() && std::min(layout.input().sizes[0], layout.input().sizes[1]) >= 64) {
    const int64_t height = layout.input().sizes[0] / 2, width = layout.input().sizes[1] / 2;
    remedies.push_back({.set = height == width ? fmt::format("data.image.size={}", height)
                                               : fmt::format("data.image.size=[{},{}]", height, width),
                        .effect = "a quarter of the pixels",
                        .saved = activations * 3 / 4,
                        .change = 2});
  }
}

/// Adds a model with half as many layers, if the model has a number of layers, and pretrained weights do not fix it.
void add_smaller_model(std::vector<Remedy>& remedies, const Job& job, int64_t saved) {
  if (job.spec().model.pretrained) return;
  for (const auto& setting : job.loaded.settings()) {
    if (setting.key != "model.config.n_layer") continue;
    const int64_t layers = std::atoll(setting.value.c_str());
    if (layers < 2) continue;
    remedies.push_back({.set = fmt::format("model.config.n_layer={}", layers / 2),
                        .effect = fmt::format("{} of {} layers", layers / 2, layers),
                        .saved = saved,
                        .change = 2});
  }
}

std::string hint_of(const std::vector<Remedy>& remedies) {
  std::string text = "one of these; the first ones change results least";
  size_t number = 0;
  for (const Remedy& remedy : remedies) {
    const std::string saved = remedy.saved > 0 ? "about " + monitor::bytes(remedy.saved) + " less; " : "";
    text += fmt::format("\n    {}  --set {:<30}  {}{}", ++number, remedy.set, saved, remedy.effect);
  }
  return text + fmt::format("\n    {}  a device with more memory", ++number);
}

/// Describes the present use, to which `requested` bytes more did not fit.
std::string use_text(const JobSpec& spec, const TrainingSetup& setup, const Memory& memory, int64_t requested) {
  std::string text;
  const auto line = [&](const char* what, int64_t bytes, const std::string& remark) {
    text += fmt::format("\n    {:<16}{:>10}", what, monitor::bytes(bytes)) + (remark.empty() ? "" : "  " + remark);
  };
  const auto reading = device::read_memory(setup.context.device);
  const FixedMemory& fixed = memory.fixed;
  line("parameters", fixed.parameters + fixed.buffers, fixed.frozen > 0 ? "that are trained" : "");
  if (fixed.borrowed > 0) line("the first stage's", fixed.borrowed, "embedding, which is the head, and its gradient");
  if (fixed.frozen > 0) line("frozen ones", fixed.frozen, "");
  if (fixed.working_copy > 0) line("copy of them", fixed.working_copy, "in " + spec.precision);
  line("gradients", fixed.gradients, "");
  line("optimizer state", fixed.optimizer_state,
       spec.optimizer.type.name +
           (fixed.state_on_host > 0 ? ", and " + monitor::bytes(fixed.state_on_host) + " in the host's memory" : ""));
  if (memory.data > 0)
    line("data", memory.data, grouped(batches_ahead(spec, setup.plan.batch)) + " micro-batches read ahead");
  line("rest", memory.activations.bytes(memory.micro_batch) - requested,
       (setup.built.pipeline ? "activations of micro-batches of " : "activations of a micro-batch of ") +
           grouped(memory.micro_batch));
  line("sum", memory.total() - requested,
       reading.peak_process_bytes > 0 ? "at the peak; the process held " + monitor::bytes(reading.peak_process_bytes)
                                      : "at the peak");
  line("limit", reading.limit_bytes, reading.limit);
  return text;
}

/// Returns the memory at the peak plus `requested` bytes; the limit leaves activations a little less than they had.
Memory measured_memory(const JobSpec& spec, const TrainingSetup& setup, int64_t requested) {
  const auto& batch = setup.plan.batch;
  const bool on_cpu = setup.context.device.is_cpu();
  Memory memory{.fixed = fixed_memory(setup.built, setup.optimizer_stack),
                .micro_batch = std::max<int64_t>(1, batch.micro_batch),
                .evaluates = true};
  if (on_cpu) memory.data = batch_bytes(*setup.datasets.train, memory.micro_batch) * batches_ahead(spec, batch);
  // On a CPU the arena and the optimizer state are mapped outside the allocator, so its reading excludes them.
  const int64_t known = on_cpu ? memory.data + memory.fixed.borrowed : memory.fixed.total();
  const int64_t rest = std::max<int64_t>(0, device::read_memory(setup.context.device).peak_tensor_bytes - known);
  memory.activations.measure(memory.micro_batch, rest + requested);
  memory.limit = memory.fixed.total() + memory.data + rest * 9 / 10;
  return memory;
}

}  // namespace

void Activations::measure(int64_t samples, int64_t bytes) noexcept {
  bytes_per_sample = ceil_divide(std::max<int64_t>(0, bytes - measured_bytes), samples - measured_samples);
  measured_samples = samples;
  measured_bytes = bytes;
}

std::string memory_remedies(const Job& job, const TrainingSetup& setup, const Memory& memory) {
  const JobSpec& spec = job.spec();
  std::vector<Remedy> remedies;
  add_micro_batch(remedies, spec, setup, memory);
  add_sharding(remedies, spec, setup, memory);
  add_passes(remedies, spec, setup, memory);
  add_offload(remedies, spec, setup, memory);
  add_precision(remedies, spec, memory);
  add_narrower_state(remedies, spec, memory);
  add_adapter(remedies, spec, &setup, &memory);
  add_shorter_inputs(remedies, setup, memory);
  add_smaller_model(remedies, job, memory.total() / 2);
  std::erase_if(remedies, [&](const Remedy& remedy) { return remedy.saved < memory.total() / 50; });
  std::ranges::stable_sort(
      remedies, {}, [](const Remedy& remedy) { return std::tuple(remedy.change, remedy.copies, -remedy.saved); });
  return hint_of(remedies);
}

std::optional<Error> out_of_memory_error(const std::exception& failure, const Job& job, const TrainingSetup* setup,
                                         const std::string& when) {
  const auto shortage = device::shortage_of(failure);
  if (!shortage) return std::nullopt;
  const int64_t requested = shortage->requested_bytes;
  std::string what = "out of memory " + when;
  if (requested > 0) what += ": " + monitor::bytes(requested) + " more could not be allocated";
  if (setup != nullptr) {
    const Memory memory = measured_memory(job.spec(), *setup, requested);
    what += use_text(job.spec(), *setup, memory, requested);
    return Error(ExitCode::environment, {.what = what, .hint = memory_remedies(job, *setup, memory)});
  }
  const auto reading = device::read_memory(shortage->on_gpu ? device::current_gpu() : at::Device(at::kCPU));
  what += fmt::format("\n    {:<16}{:>10}  {}", "limit", monitor::bytes(reading.limit_bytes), reading.limit);
  std::vector<Remedy> remedies;
  add_adapter(remedies, job.spec(), nullptr, nullptr);
  add_smaller_model(remedies, job, 0);
  return Error(ExitCode::environment, {.what = what, .hint = hint_of(remedies)});
}

}  // namespace gputrain::app
