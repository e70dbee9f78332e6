#include "gputrain/estimate/micro_batch.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/activity.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/estimate/memory.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/ops/kernel_choices.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/setup/timed_steps.hpp"
#include "gputrain/train/step.hpp"

namespace gputrain::app {
namespace {

constexpr int64_t kMostPasses = 8;     // limit for forward passes of a trial step; more would only take longer
constexpr double kEnoughSeconds = 10;  // limit per micro-batch size

/// Returns the context with its own group, so that a rank that runs out of memory blocks no other one in a collective.
RankContext apart(const RankContext& context) {
  RankContext own;
  own.launch = context.launch;
  own.threads = context.threads;
  own.device = context.device;
  own.policy = context.policy;
  own.groups = comm::ProcessGroups::simulated(context.launch.rendezvous, std::make_shared<comm::CollectiveTraffic>(),
                                              context.device);
  own.groups.arrange(context.groups.mesh());
  return own;
}

/// Result of one micro-batch size on one rank, as a row of numbers for an all-gather.
struct TrialFinding {
  double needed_bytes = 0, free_bytes = 0;  // both 0: unknown before the trial
  double fits = 0;
  double samples_per_second = 0;
  double peak_bytes = 0;

  std::array<double, 5> row() const { return {needed_bytes, free_bytes, fits, samples_per_second, peak_bytes}; }
  static TrialFinding of(const double* row) { return {row[0], row[1], row[2], row[3], row[4]}; }

  std::string misfit() const {
    if (fits > 0) return "";
    if (needed_bytes == 0) return "out of memory";
    return "needs " + monitor::bytes(needed_bytes) + ", " + monitor::bytes(free_bytes) + " are free";
  }
};

class MicroBatchSearch {
 public:
  MicroBatchSearch(const Job& job, RankContext& context, const JobDatasets& datasets)
      : job_(job),
        context_(context),
        trial_(job, apart(context), [&] { return datasets; }),
        whole_(trial_.plan.batch) {}

  std::vector<MicroBatchTrial> run() {
    // cuDNN would compile its plans anew for each size, for a minute or more, and its memory would hardly change.
    std::optional<ops::RoughKernelChoices> rough;
    if (context_.device.is_cuda()) rough.emplace();
    std::vector<MicroBatchTrial> trials;
    for (const int64_t size : train::micro_batches_to_try(whole_.micro_batch)) {
      context_.groups.enter("trying a micro-batch of", size);
      trials.push_back(agree(size, try_out(size)));
      const bool takes_all = size * context_.groups.mesh().samples() >= trial_.plan.samples_per_epoch;
      if (!trials.back().misfit.empty() || is_past_the_best(trials) || takes_all) break;
    }
    if (!trials.front().misfit.empty()) refuse(trials.front());
    return trials;
  }

 private:
  TrialFinding try_out(int64_t size) {
    TrialFinding finding;
    if (context_.device.is_cpu()) {  // a shortage there kills the process: check before
      constexpr double kLeftToOthers = 0.1;
      const int ranks_here = std::max(1, context_.launch.rendezvous.local_world_size);
      finding.needed_bytes = static_cast<double>(bytes_needed(size));
      finding.free_bytes = (1 - kLeftToOthers) * static_cast<double>(device::available_host_bytes()) / ranks_here;
      if (finding.needed_bytes > finding.free_bytes) return finding;
    }
    try {
      const TimedSteps steps = time_steps(job_, trial_,
                                          {.batch = batch_of(size),
                                           .warmup = warmup(),
                                           .steps = 4,
                                           .enough_seconds = kEnoughSeconds,
                                           .evaluates = true});
      finding.fits = leaves_room(steps.peak_bytes, finding) ? 1 : 0;
      finding.samples_per_second = *std::max_element(steps.samples_per_second.begin(), steps.samples_per_second.end());
      finding.peak_bytes = static_cast<double>(steps.peak_bytes);
      activations_.measure(size, steps.peak_bytes - fixed_memory(trial_.built, trial_.optimizer_stack).with_host());
    } catch (const std::exception& failure) {
      shortage_ = out_of_memory_error(failure, job_, &trial_, "with a micro-batch of " + grouped(size));
      if (!shortage_) throw;
      finding.needed_bytes = 0;
    }
    device::release_unused(context_.device);
    return finding;
  }

  /// Returns enough steps, on a GPU, to measure CUDA graph replays, whose speed and memory differ.
  int64_t warmup() const { return context_.device.is_cpu() ? 2 : train::Step::kPassesBeforeCapture + 1; }

  /// Returns whether memory is left; on a GPU with a reserve: evaluations and saves between steps fragment the memory.
  bool leaves_room(int64_t peak_bytes, TrialFinding& finding) const {
    if (context_.device.is_cpu()) return true;  // was checked before the trial
    constexpr double kLeftToPieces = 0.05;
    finding.needed_bytes = static_cast<double>(peak_bytes);
    finding.free_bytes = (1 - kLeftToPieces) * static_cast<double>(device::available_gpu_bytes(context_.device));
    return finding.needed_bytes <= finding.free_bytes;
  }

  /// Plans a whole step, or enough passes of it to measure its speed.
  train::BatchPlan batch_of(int64_t size) const {
    const int64_t per_pass = size * context_.groups.mesh().samples();
    const int64_t passes = std::min(kMostPasses, ceil_divide(whole_.global_batch, per_pass));
    return {
        .global_batch = std::min(whole_.global_batch, passes * per_pass), .micro_batch = size, .accumulation = passes};
  }

  /// Returns the host memory of this rank's copy for a background save, and of the threads that write it. The trial's
  /// groups have no peers, so the sum over ranks is this rank's part.
  int64_t bytes_of_a_save() {
    constexpr int64_t kStacksAndBlocks = int64_t{32} << 20;
    const int64_t copied = trial_.plan.save.is_never() ? 0 : checkpoint_bytes(trial_);
    return copied > 0 ? copied + kStacksAndBlocks : 0;
  }

  /// Extrapolates the memory needed beyond what is held now, linearly from smaller micro-batches.
  int64_t bytes_needed(int64_t size) {
    const FixedMemory fixed = fixed_memory(trial_.built, trial_.optimizer_stack);
    const int64_t state = fixed.optimizer_state + fixed.state_on_host;
    if (activations_.measured_samples == 0) return fixed.gradients + state + bytes_of_a_save();
    constexpr double kUncertainty = 1.1;
    const int64_t more = activations_.bytes(size) - device::host_allocator_facts().in_use_bytes;
    return static_cast<int64_t>(kUncertainty * static_cast<double>(more)) + bytes_of_a_save();
  }

  /// Combines the results of all ranks: the lowest speed and the highest peak count.
  MicroBatchTrial agree(int64_t size, const TrialFinding& own) {
    const at::Tensor rows = context_.groups.control().all_gather(at::tensor(own.row(), at::kDouble), "micro-batch");
    MicroBatchTrial trial{.micro_batch = size, .misfit = {}};
    const double* row = rows.const_data_ptr<double>();
    for (int rank = 0; rank < context_.groups.world_size(); ++rank, row += own.row().size()) {
      const TrialFinding finding = TrialFinding::of(row);
      const double rate = finding.samples_per_second;
      trial.samples_per_second = rank == 0 ? rate : std::min(trial.samples_per_second, rate);
      trial.peak_bytes = std::max(trial.peak_bytes, static_cast<int64_t>(finding.peak_bytes));
      if (finding.fits > 0 || !trial.misfit.empty()) continue;
      trial.misfit = finding.misfit() + (context_.groups.alone() ? "" : " on rank " + std::to_string(rank));
    }
    return trial;
  }

  /// Returns whether to stop the search: this size took long and is not faster than a smaller one.
  bool is_past_the_best(const std::vector<MicroBatchTrial>& trials) const {
    const MicroBatchTrial& last = trials.back();
    const int64_t samples = batch_of(last.micro_batch).global_batch / context_.groups.mesh().samples();
    if (static_cast<double>(samples) / last.samples_per_second < kEnoughSeconds) return false;
    return fastest(trials) != last.micro_batch;
  }

  [[noreturn]] void refuse(const MicroBatchTrial& smallest) const {
    if (shortage_) throw Error(*shortage_);
    const Memory memory{.fixed = fixed_memory(trial_.built, trial_.optimizer_stack),
                        .micro_batch = smallest.micro_batch};
    throw Error(ExitCode::environment, {.what = "out of memory: not even a micro-batch of 1 fits: " + smallest.misfit,
                                        .where = "train.micro_batch_size: auto",
                                        .hint = memory_remedies(job_, trial_, memory)});
  }

  const Job& job_;
  RankContext& context_;
  TrainingSetup trial_;
  train::BatchPlan whole_;
  Activations activations_;
  std::optional<Error> shortage_;
};

/// Hashes everything that decides what fits and what is fast.
std::string purpose_of(const Job& job, const RankContext& context) {
  const auto facts = device::facts_of(context.device);
  std::string text =
      facts.name + "\n" + std::to_string(facts.total_bytes) + "\n" + std::to_string(context.groups.world_size());
  for (const auto& [key, value, change] : job.loaded.settings()) {
    const auto begins = [&, name = std::string_view(key)](const char* prefix) { return name.starts_with(prefix); };
    const bool counts = begins("model.") || begins("data.") || begins("precision") || begins("parallel.") ||
                        begins("optimizer.type") || begins("train.global_batch") ||
                        begins("train.activation_checkpointing") || begins("train.channels_last") ||
                        begins("alloc_conf") || begins("deterministic");
    if (counts) text += "\n" + key + ": " + value;
  }
  return fmt::format("{:016x}", stable_hash(text));
}

/// Returns the result in the newest ledger line that has one; null: none.
nlohmann::json last_finding(const Job& job) {
  const auto ledger = monitor::read_ledger(RunFolder{job.output_dir}.ledger()).lines;
  for (auto line = ledger.rbegin(); line != ledger.rend(); ++line) {
    const auto found = line->find("micro_batch");
    if (found != line->end() && found->is_object() && found->value("size", int64_t{0}) > 0) return *found;
  }
  return nullptr;
}

/// Returns the result of an earlier attempt for the same purpose, read by rank 0 and broadcast; 0: none.
int64_t kept_micro_batch(const Job& job, RankContext& context, const std::string& purpose) {
  int64_t kept = 0;
  if (context.rank() == 0 && job.spec().checkpoint.resume != "never") {
    const auto found = last_finding(job);
    if (found.is_object() && found.value("found_for", "") == purpose) kept = found["size"].get<int64_t>();
  }
  return context.groups.from_rank_zero(kept, "micro-batch found before");
}

}  // namespace

std::optional<int64_t> found_before(const Job& job) {
  const auto found = last_finding(job);
  return found.is_object() ? std::optional(found["size"].get<int64_t>()) : std::nullopt;
}

MicroBatchChoice choose_micro_batch(const Job& job, RankContext& context, const JobDatasets& datasets) {
  const Activity activity("micro", "trying micro-batches");
  MicroBatchChoice choice{.found_for = purpose_of(job, context)};
  choice.micro_batch = kept_micro_batch(job, context, choice.found_for);
  if (choice.micro_batch > 0) return choice;
  if (context.rank() == 0)
    log::info(monitor::Console::labelled("micro") + "trying micro-batches, each for a few steps; with " +
              "train.micro_batch_size: N there is no search");
  const train::Stopwatch watch;
  const at::Tensor of_cpu = device::generator_state(at::kCPU), of_device = device::generator_state(context.device);
  choice.trials = MicroBatchSearch(job, context, datasets).run();
  device::set_generator_state(at::kCPU, of_cpu);
  device::set_generator_state(context.device, of_device);
  device::release_unused(context.device);
  choice.micro_batch = fastest(choice.trials);
  choice.seconds = watch.seconds();
  return choice;
}

Job with_micro_batch(const Job& job, int64_t micro_batch) {
  JobSpec spec = job.spec();
  spec.train.micro_batch_size.emplace().value = micro_batch;
  Job said = job;
  said.loaded = job.loaded.with(std::move(spec));
  return said;
}

}  // namespace gputrain::app
