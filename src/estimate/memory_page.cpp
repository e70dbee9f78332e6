#include "gputrain/estimate/memory_page.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gputrain/core/numbers.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/fixed_memory.hpp"

namespace gputrain::app {
namespace {

std::string size_text(int64_t bytes) { return monitor::bytes(static_cast<double>(bytes)); }

/// Memory use at the peak.
struct MemoryUse {
  device::MemoryReading reading;
  int64_t requested = 0;  // by the request that failed
  int64_t parameters = 0, frozen = 0, working_copy = 0, gradients = 0, optimizer_state = 0;
  int64_t data = 0;  // batches read ahead, in host memory
  int64_t rest = 0;  // activations, and what operators need for a moment

  int64_t fixed() const noexcept { return parameters + frozen + working_copy + gradients + optimizer_state; }
  int64_t total() const noexcept { return fixed() + data + rest; }
};

int64_t own_micro_batch(const Assembly& assembly) { return assembly.plan.batch.micro_batch_of(assembly.place.rank()); }

MemoryUse use_of(const device::Shortage& shortage, const JobSpec& spec, const Assembly& assembly) {
  const at::Device device = assembly.place.device;
  MemoryUse use{.reading = device::read_memory(device), .requested = shortage.requested_bytes};
  const FixedMemory fixed = fixed_memory(assembly.built, assembly.updates);
  use.parameters = fixed.parameters;
  use.frozen = fixed.frozen;
  use.working_copy = fixed.working_copy;
  use.gradients = fixed.gradients;
  use.optimizer_state = fixed.optimizer_state;
  const auto& batch = assembly.plan.batch;
  if (device.is_cpu())
    use.data = batch_bytes(*assembly.datasets.train, own_micro_batch(assembly)) * batches_ahead(spec, batch);
  // On the CPU the arena and tensors of its size are mapped outside the allocator, so its peak contains only the
  // others.
  const int64_t known = device.is_cpu() ? use.data : use.fixed();
  use.rest = std::max<int64_t>(0, use.reading.peak_tensor_bytes - known);
  return use;
}

struct Remedy {
  std::string set;
  std::string effect;
  int64_t saved = 0;
  int change = 0;  // change of results: 0 none, 1 rounding, 2 another model or other inputs
};

/// A divisor of the micro-batch, at most half of it, whose activations fit into the memory that was available.
int64_t smaller_micro_batch(int64_t micro, const MemoryUse& use) {
  const double needed = static_cast<double>(use.rest + use.requested), room = 0.9 * static_cast<double>(use.rest);
  for (int64_t smaller = micro / 2; smaller > 1; --smaller) {
    const bool fits = needed * static_cast<double>(smaller) / static_cast<double>(micro) <= room;
    if (micro % smaller == 0 && fits) return smaller;
  }
  return 1;
}

void add_micro_batch(std::vector<Remedy>& remedies, const JobSpec& spec, const Assembly& assembly,
                     const MemoryUse& use) {
  const auto& batch = assembly.plan.batch;
  const int64_t present = own_micro_batch(assembly);
  if (present < 2) return;
  const int64_t micro = smaller_micro_batch(present, use);
  train::BatchPlan smaller = batch;
  smaller.micro_batch = micro;
  if (!batch.micro_batches.empty()) smaller.micro_batches[static_cast<size_t>(assembly.place.rank())] = micro;
  const int64_t per_pass = smaller.micro_batch_over_ranks(assembly.place.groups.world_size());
  const int64_t passes = ceil_divide(batch.global_batch, per_pass);
  std::string set = "train.micro_batch_size=" + (batch.micro_batches.empty()
                                                     ? fmt::format("{}", micro)
                                                     : fmt::format("[{}]", fmt::join(smaller.micro_batches, ",")));
  if (!spec.train.gradient_accumulation_steps.is_auto()) {
    set += fmt::format(" --set train.gradient_accumulation_steps={}", passes);
  }
  remedies.push_back({.set = set,
                      .effect = fmt::format("{} forward passes per step instead of {}; the global batch stays {}",
                                            passes, batch.accumulation, batch.global_batch),
                      .saved = use.rest - use.rest * micro / present});
}

void add_sharding(std::vector<Remedy>& remedies, const JobSpec& spec, const Assembly& assembly, const MemoryUse& use) {
  const int64_t ranks = assembly.place.groups.world_size();
  if (ranks == 1 || spec.parallel.shard == "gradients" || spec.parallel.compress == "powersgd") return;
  const int64_t shared = use.gradients + (spec.parallel.shard == "none" ? use.optimizer_state : 0);
  remedies.push_back({.set = "parallel.shard=gradients",
                      .effect = fmt::format("each of {} ranks keeps its part of gradients and optimizer state", ranks),
                      .saved = shared - shared / ranks,
                      .change = 1});
}

void add_evaluation(std::vector<Remedy>& remedies, const JobSpec& spec, const Assembly& assembly,
                    const MemoryUse& use) {
  const int64_t micro = own_micro_batch(assembly);
  if (!spec.eval.batch_size || *spec.eval.batch_size <= micro) return;
  remedies.push_back({.set = fmt::format("eval.batch_size={}", micro),
                      .effect = "evaluation uses the micro-batch of training",
                      .saved = use.rest - use.rest * micro / *spec.eval.batch_size});
}

void add_reading(std::vector<Remedy>& remedies, const JobSpec& spec, const Assembly& assembly, const MemoryUse& use) {
  const int64_t least = std::max<int64_t>(1, assembly.plan.batch.accumulation),
                ahead = batches_ahead(spec, assembly.plan.batch);
  if (use.data == 0 || ahead <= least) return;
  remedies.push_back({.set = fmt::format("data.prefetch_factor={}", least),
                      .effect = "fewer batches are read ahead",
                      .saved = use.data - use.data * least / ahead});
}

void add_recompute(std::vector<Remedy>& remedies, const JobSpec& spec, const Assembly& assembly, const MemoryUse& use) {
  if (spec.train.activation_checkpointing == "block" || !assembly.built.model->offers(nn::Recompute::block)) return;
  remedies.push_back({.set = "train.activation_checkpointing=block",
                      .effect = "blocks are recomputed in the backward pass; a step takes a third longer",
                      .saved = use.rest / 2});
}

void add_precision(std::vector<Remedy>& remedies, const JobSpec& spec, const MemoryUse& use) {
  if (spec.precision == "bf16" || spec.precision == "fp16") return;
  const bool is_double = spec.precision == "fp64";
  remedies.push_back({.set = is_double ? "precision=fp32" : "precision=bf16",
                      .effect = is_double ? "everything takes half" : "most activations take half",
                      .saved = is_double ? use.total() / 2 : use.rest / 2,
                      .change = 1});
}

void add_shorter_inputs(std::vector<Remedy>& remedies, const Assembly& assembly, const MemoryUse& use) {
  const auto& layout = assembly.datasets.train->layout();
  const int64_t tokens = assembly.datasets.tokens_per_sample();
  if (tokens >= 2) {
    remedies.push_back({.set = fmt::format("data.text.max_length={}", tokens / 2),
                        .effect = fmt::format("sequences of {} tokens instead of {}", tokens / 2, tokens),
                        .saved = use.rest / 2,
                        .change = 2});
  } else if (layout.is_image() && layout.input().sizes[0] >= 64) {
    const int64_t size = layout.input().sizes[0] / 2;
    remedies.push_back({.set = fmt::format("data.image.size={}", size),
                        .effect = "a quarter of the pixels",
                        .saved = use.rest * 3 / 4,
                        .change = 2});
  }
}

/// A model with half as many layers, if the model has a number of layers.
void add_smaller_model(std::vector<Remedy>& remedies, const Job& job, int64_t saved) {
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

/// Smallest change of results first, then largest saving first.
std::vector<Remedy> remedies_for(const Job& job, const Assembly& assembly, const MemoryUse& use) {
  const JobSpec& spec = job.spec();
  std::vector<Remedy> remedies;
  add_micro_batch(remedies, spec, assembly, use);
  add_sharding(remedies, spec, assembly, use);
  add_evaluation(remedies, spec, assembly, use);
  if (assembly.place.device.is_cpu()) add_reading(remedies, spec, assembly, use);
  add_recompute(remedies, spec, assembly, use);
  add_precision(remedies, spec, use);
  add_shorter_inputs(remedies, assembly, use);
  add_smaller_model(remedies, job, use.total() / 2);
  std::erase_if(remedies, [&](const Remedy& remedy) { return remedy.saved < use.total() / 50; });
  std::stable_sort(remedies.begin(), remedies.end(), [](const Remedy& a, const Remedy& b) {
    return std::pair(a.change, -a.saved) < std::pair(b.change, -b.saved);
  });
  return remedies;
}

std::string use_text(const JobSpec& spec, const Assembly& assembly, const MemoryUse& use) {
  std::string text;
  const auto line = [&](const char* what, int64_t bytes, const std::string& remark) {
    text += fmt::format("\n    {:<16}{:>10}", what, size_text(bytes)) + (remark.empty() ? "" : "  " + remark);
  };
  const auto& reading = use.reading;
  line("parameters", use.parameters, use.frozen > 0 ? "that are trained" : "");
  if (use.frozen > 0) line("frozen ones", use.frozen, "by model.freeze");
  if (use.working_copy > 0) line("copy of them", use.working_copy, "in " + spec.precision);
  line("gradients", use.gradients, "");
  line("optimizer state", use.optimizer_state, spec.optimizer.type.name);
  if (use.data > 0)
    line("data", use.data, grouped(batches_ahead(spec, assembly.plan.batch)) + " micro-batches read ahead");
  line("rest", use.rest, "activations of a micro-batch of " + grouped(own_micro_batch(assembly)));
  line("sum", use.total(),
       reading.peak_process_bytes > 0 ? "at the peak; the process held " + size_text(reading.peak_process_bytes)
                                      : "at the peak");
  line("limit", reading.limit_bytes, reading.limit);
  return text;
}

std::string hint_of(const std::vector<Remedy>& remedies, bool on_gpu) {
  std::string text = "one of these; the first ones change results least";
  size_t number = 0;
  for (const Remedy& remedy : remedies) {
    const std::string saved = remedy.saved > 0 ? "about " + size_text(remedy.saved) + " less; " : "";
    text += fmt::format("\n    {}  --set {:<30}  {}{}", ++number, remedy.set, saved, remedy.effect);
  }
  return text + fmt::format("\n    {}  a {} with more memory", ++number, on_gpu ? "GPU" : "machine");
}

}  // namespace

std::optional<Error> out_of_memory_error(const std::exception& failure, const Job& job, const Assembly* assembly,
                                         const std::string& when) {
  const auto shortage = device::shortage_of(failure);
  if (!shortage) return std::nullopt;
  std::string what = "out of memory " + when;
  if (shortage->requested_bytes > 0)
    what += ": " + size_text(shortage->requested_bytes) + " more could not be allocated";
  std::vector<Remedy> remedies;
  if (assembly != nullptr) {
    const MemoryUse use = use_of(*shortage, job.spec(), *assembly);
    what += use_text(job.spec(), *assembly, use);
    remedies = remedies_for(job, *assembly, use);
  } else {
    const auto reading = device::read_memory(shortage->on_gpu ? device::current_gpu() : at::Device(at::kCPU));
    what += fmt::format("\n    {:<16}{:>10}  {}", "limit", size_text(reading.limit_bytes), reading.limit);
    add_smaller_model(remedies, job, 0);
  }
  return Error(ExitCode::environment, {.what = what, .hint = hint_of(remedies, shortage->on_gpu)});
}

}  // namespace gputrain::app
