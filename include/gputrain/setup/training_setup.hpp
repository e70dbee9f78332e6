// All parts of a run, built from the job in the order of the data flow.
#pragma once

#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/comm/simulated_ranks.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/open.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"
#include "gputrain/optim/grad_scaler.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"
#include "gputrain/optim/weight_average.hpp"
#include "gputrain/parallel/pipeline.hpp"
#include "gputrain/parallel/sharded_parameters.hpp"
#include "gputrain/setup/gradient_sync.hpp"
#include "gputrain/setup/micro_batch_choice.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/evaluator.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::app {

/// Device and process groups of this process.
struct RankContext {
  launch::Launch launch;
  device::CpuThreads threads;
  at::Device device = at::kCPU;
  ops::Policy policy;
  comm::ProcessGroups groups;

  int rank() const noexcept { return launch.rendezvous.rank; }
};

/// Sets up the process for the job: threads, device, numerics, random seeds, rendezvous of the ranks. Every rank must
/// call.
RankContext create_rank_context(const Job& job);

/// Facts on which ranks must agree when they meet.
struct Meeting {
  std::chrono::milliseconds deadline;  // for one collective
  std::string purpose;                 // name, the same on all ranks: "run quickstart-5d85e2"
};
/// Does the same for work that needs no more of a job than how its ranks start.
RankContext create_rank_context(const JobStart& spec, const Meeting& meeting);

/// Does the same for a rank without peers: it computes on this machine's CPU with all cores and sends nothing.
/// `traffic` counts what it would send.
RankContext simulate_rank(const Job& job, const comm::Rendezvous& at, std::shared_ptr<comm::CollectiveTraffic> traffic);

/// Arranges `ranks` as the job says. Throws SpecError for numbers that do not divide each other.
comm::Mesh mesh_of(const Job& job, int ranks);

/// Rethrows an error before the rendezvous; call it in a handler. The ranks meet only to find out if rank 0 has the
/// same error; then this rank throws ReportedElsewhere, so that only rank 0 prints it.
[[noreturn]] void fail_before_rendezvous(const Error& mistake);

/// Reports the failure to the other ranks and rethrows it; call it in a handler.
[[noreturn]] void fail(RankContext& context, const std::exception& failure);

/// Datasets of the job, and the facts for the model. val and test are null if the job has none.
struct JobDatasets : data::DatasetSplits {
  models::DataFacts facts;
  std::shared_ptr<tasks::Task> task;  // loss and metrics

  /// Returns 0 if a sample is not learned token by token.
  int64_t tokens_per_sample() const;
  /// Returns the meaning of a target number.
  std::string target_kind() const {
    return tokens_per_sample() > 0 && train->class_names().empty() ? "character" : "class";
  }
};

/// Use of the datasets: a model that only reads may have another head than the job's task learns with. For planning,
/// the pretrained weights need not be there.
enum class Purpose { learning, reading, planning };
/// Opens the data. Chat templates may write the date: `time`, or time_of_texts().
JobDatasets open_datasets(const Job& job, Purpose purpose = Purpose::learning, const std::optional<std::tm>& time = {});
/// Returns the local time of the run's first attempt by the ledger in its folder, or, before there is one, now.
std::tm time_of_texts(const Job& job);
/// Returns the same for training data that is open already.
JobDatasets datasets_of(const Job& job, std::shared_ptr<const data::Dataset> train);
/// Returns the facts of the training data for the job's model.
models::DataFacts facts_of(const Job& job, const data::Dataset& train);

/// Model in its arena (flat buffer), initialized from the seed or from pretrained weights.
struct BuiltModel {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<models::Adapter> adapter;  // null: the job has none
  std::unique_ptr<device::Arena> arena;
  std::vector<at::Tensor> parameters;       // trainable ones
  int64_t parameter_count = 0;              // elements of all parameters
  int64_t trainable_count = 0;              // elements of the trained ones
  models::NotLoaded not_loaded;             // parts that pretrained weights do not have
  std::vector<std::string> class_names;     // names of the classes in the order of the last layer's rows; empty: none
  std::optional<models::ImageSize> images;  // size of the data's images; empty: it has none
  std::filesystem::path pretrained;         // weights that it began with; empty: none
  bool has_batch_norm = false;              // true: its passes in training depend on all rows of a batch
  bool sync_batch_norm = false;             // true: and on those of all ranks
  std::vector<device::Shard> owners;        // range that each rank updates, if they share them out; otherwise empty
  std::unique_ptr<parallel::ShardedParameters> sharded;  // null unless ranks share out the values too
  std::unique_ptr<parallel::Pipeline> pipeline;          // null unless ranks have other units of the model
  std::map<std::string, int64_t> units;  // units of all parameters in a pipeline, also those of other ranks

  /// Returns the number of ranks that share the layers; 1: each rank has all.
  int tensor_ranks() const;
  int stages() const { return pipeline != nullptr ? pipeline->stages() : 1; }
  /// Returns whether no rank has all weights, so that all reads of them and all runs of the model are collective.
  bool has_parts() const { return arena->keeps_owned_values_only() || tensor_ranks() > 1 || stages() > 1; }
  /// Counts the ranks that together have all of the optimizer's state, or of the weights: the first ones of each stage.
  int ranks_of_state() const { return state_ranks_of_stage() * stages(); }
  int ranks_of_weights() const { return weight_ranks_of_stage() * stages(); }
  /// Returns the number of a rank among these; -1: it is none of them.
  int writer_of_state(const comm::Mesh& mesh, int rank) const { return writer(mesh, rank, state_ranks_of_stage()); }
  int writer_of_weights(const comm::Mesh& mesh, int rank) const { return writer(mesh, rank, weight_ranks_of_stage()); }

 private:
  int state_ranks_of_stage() const { return std::max(1, static_cast<int>(owners.size())) * tensor_ranks(); }
  int weight_ranks_of_stage() const {
    return arena->keeps_owned_values_only() ? state_ranks_of_stage() : tensor_ranks();
  }
  static int writer(const comm::Mesh& mesh, int rank, int of_stage) {
    const int place = mesh.place_in_stage_of(rank);
    return place < of_stage ? mesh.stage_of(rank) * of_stage + place : -1;
  }
};

/// Builds the model. Every rank must call.
BuiltModel build_model(const Job& job, const JobDatasets& datasets, RankContext& context);

/// Gives an adapter the start that its `init` finds in the base's weights. For a run that begins anew: it takes long
/// for a large model, and a checkpoint or file has other values. Every rank must call.
void start_adapter(BuiltModel& built, RankContext& context);

/// Builds the same in sizes alone: tensors of its arena, and those that an optimizer makes beside them, have no memory
/// and must not be read. Takes as little memory and time for 70 billion parameters as for a million. Sends nothing.
BuiltModel model_without_memory(const Job& job, const JobDatasets& datasets, RankContext& context);

/// Calls `visit` with the values of each parameter, gathered unit by unit or one by one if no rank has all. Every rank
/// must call.
void each_weight(BuiltModel& built, const std::function<void(const std::string& name, const at::Tensor& values)>& visit,
                 parallel::Values which = parallel::Values::all);

/// Returns weights by name; buffers belong to the trained ones. If no rank has all, rank 0 gets copies in host memory,
/// the others nothing. Every rank must call.
checkpoint::NamedTensors gathered_weights(BuiltModel& built, const RankContext& context,
                                          parallel::Values which = parallel::Values::all);

/// Returns all weights with the adapter merged into them. Changes the model, unless ranks share out the values.
checkpoint::NamedTensors merged_weights(BuiltModel& built, const RankContext& context);

/// Optimizer, schedule and scaler, which turn gradients into new weights.
struct OptimizerStack {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Schedule> schedule;
  std::unique_ptr<optim::GradScaler> scaler;  // null unless the precision needs loss scaling
  optim::Optimizer* average = nullptr;        // the optimizer, if it has an average of the weights
  optim::AverageRule average_rule = {};       // rule of train.ema and train.swa
};

OptimizerStack build_optimizer_stack(const Job& job, const RankContext& context, const train::Plan& plan,
                                     const BuiltModel& built);

/// Content of the model's tensors: values, or, as in model_without_memory(), sizes alone. With `made_up` an adapter may
/// stand beside values that are not pretrained.
enum class Weights { values, sizes, made_up };

/// All parts, in the order in which they are built; the first one is destroyed last. Not movable: the model refers to
/// the group in `context`.
struct TrainingSetup {
  /// Plans a run from its first step; see go_on_from(). `kept_global_batch` is the global batch of the run that is
  /// resumed; 0: a new run. Every rank must call.
  explicit TrainingSetup(const Job& job, int64_t kept_global_batch = 0);
  /// Does the same with an existing place; `open` returns the datasets.
  TrainingSetup(const Job& job, RankContext at, const std::function<JobDatasets()>& open, int64_t kept_global_batch = 0,
                Weights weights = Weights::values);
  TrainingSetup(const TrainingSetup&) = delete;
  TrainingSetup& operator=(const TrainingSetup&) = delete;

  RankContext context;
  JobDatasets datasets;
  train::Plan plan;
  BuiltModel built;
  OptimizerStack optimizer_stack;
  GradientSync gradient_sync;
  MicroBatchChoice micro_batch;  // empty if the job sets the size
};

/// Checks before training what would fail after it: a prompt that the vocabulary cannot encode.
void check_sample(const Job& job, const JobDatasets& datasets);

train::Plan plan_run(const JobSpec& spec, const JobDatasets& datasets, const RankContext& context,
                     int64_t kept_global_batch = 0, const train::PlanStart& start = {});
data::LoaderOptions loader_options(const JobSpec& spec, const data::Dataset& dataset, const RankContext& context,
                                   const train::BatchPlan& batch);
data::InputFormat input_format(const JobSpec& spec, const data::Dataset& dataset, const RankContext& context);

/// Returns the order in which the job goes through its training data.
data::OrderFacts order_facts(const JobSpec& spec, const TrainingSetup& setup);

/// Plans the rest of a run whose steps have this global batch from `start` on: its plan and learning-rate curve.
void go_on_from(const train::PlanStart& start, const Job& job, TrainingSetup& setup);

/// Makes an evaluator, whose metrics get the prefix `role`: "val/loss". `most_samples` 0 and `task` null: the job's.
train::Evaluator make_evaluator(const JobSpec& spec, std::shared_ptr<const data::Dataset> dataset,
                                const TrainingSetup& setup, std::string role, int64_t most_samples = 0,
                                std::shared_ptr<const tasks::Task> task = nullptr);

}  // namespace gputrain::app
