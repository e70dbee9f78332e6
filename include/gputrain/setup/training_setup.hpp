// All parts of a run, built from the job in the order in which data flows.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
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

/// Where this process computes, and its process groups.
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

/// What ranks meet for.
struct Meeting {
  std::chrono::milliseconds deadline;  // for one collective
  std::string purpose;                 // "run quickstart-5d85e2": the same on all ranks
};
/// The same for work that needs no more of a job than how its ranks start.
RankContext create_rank_context(const JobStart& spec, const Meeting& meeting);

/// The same for a rank without peers: it computes on this machine's CPU with all cores and sends nothing. `traffic`
/// counts what it would send.
RankContext simulate_rank(const Job& job, const comm::Rendezvous& at, std::shared_ptr<comm::CollectiveTraffic> traffic);

/// Arranges `ranks` as the job says. Throws SpecError for numbers that do not divide each other.
comm::Mesh mesh_of(const Job& job, int ranks);

/// Call in a handler, for an error before the rendezvous: rethrows it. The ranks meet only to find out if rank 0 has
/// the same error; then this rank throws ReportedElsewhere, so that only rank 0 prints it.
[[noreturn]] void fail_before_rendezvous(const Error& mistake);

/// Call in a handler: reports the failure to the other ranks and rethrows it.
[[noreturn]] void fail(RankContext& context, const std::exception& failure);

/// The job's datasets and what the model must know of them. val and test are null if the job has none.
struct JobDatasets : data::DatasetSplits {
  models::DataFacts facts;
  std::shared_ptr<tasks::Task> task;  // loss and metrics

  /// 0: a sample is not learned token by token.
  int64_t tokens_per_sample() const;
  /// What a target number means.
  std::string target_kind() const {
    return tokens_per_sample() > 0 && train->class_names().empty() ? "character" : "class";
  }
};

/// What datasets are opened for: a model that only reads may have another head than the job's task learns with.
enum class Purpose { learning, reading };
JobDatasets open_datasets(const Job& job, Purpose purpose = Purpose::learning);
/// The same for training data that is open already.
JobDatasets datasets_of(const Job& job, std::shared_ptr<const data::Dataset> train);
/// What the job's model must know of its training data.
models::DataFacts facts_of(const Job& job, const data::Dataset& train);

/// The model in its arena (flat buffer), initialized from the seed or from pretrained weights.
struct BuiltModel {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<models::Adapter> adapter;  // null: the job has none
  std::unique_ptr<device::Arena> arena;
  std::vector<at::Tensor> parameters;       // trainable ones
  int64_t parameter_count = 0;              // elements of all
  int64_t trainable_count = 0;              // of these, elements that are trained
  models::NotLoaded not_loaded;             // of pretrained weights
  std::vector<std::string> class_names;     // of the data, in the order of the last layer's rows; empty: it has none
  std::optional<models::ImageSize> images;  // of the data; empty: it has none
  std::filesystem::path pretrained;         // the weights that it began with; empty: none
  bool has_batch_norm = false;              // its passes in training depend on all rows of a batch
  bool sync_batch_norm = false;             // ... and on those of all ranks
  std::vector<device::Shard> owners;        // what each rank updates, where they share that out; otherwise empty
  std::unique_ptr<parallel::ShardedParameters> sharded;  // null unless ranks share out the values too
  std::unique_ptr<parallel::Pipeline> pipeline;          // null unless ranks have other units of the model
  std::map<std::string, int64_t> units;                  // in a pipeline: of all parameters, also those of other ranks

  /// Ranks that share the layers; 1: each rank has all.
  int tensor_ranks() const;
  int stages() const { return pipeline != nullptr ? pipeline->stages() : 1; }
  /// Whether no rank has all weights, so that whatever reads them or runs the model is collective.
  bool has_parts() const { return arena->keeps_owned_values_only() || tensor_ranks() > 1 || stages() > 1; }
  /// How many ranks have all of the optimizer's state, or of the weights, among them: the first ones of each stage.
  int ranks_of_state() const { return state_ranks_of_stage() * stages(); }
  int ranks_of_weights() const { return weight_ranks_of_stage() * stages(); }
  /// The number of a rank among these; -1: it is none of them.
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

/// Every rank must call.
BuiltModel build_model(const Job& job, const JobDatasets& datasets, RankContext& context);

/// The same in sizes alone: tensors of its arena, and what an optimizer makes beside them, have no memory and must not
/// be read. Takes as little memory and time for 70 billion parameters as for a million. Sends nothing.
BuiltModel model_without_memory(const Job& job, const JobDatasets& datasets, RankContext& context);

/// Calls `visit` with the values of each parameter, gathered unit by unit or one by one where no rank has all. Every
/// rank must call.
void each_weight(BuiltModel& built, const std::function<void(const std::string& name, const at::Tensor& values)>& visit,
                 parallel::Values which = parallel::Values::all);

/// Weights by name; buffers belong to what is trained. Where no rank has all, rank 0 gets copies in host
/// memory, the others nothing. Every rank must call.
checkpoint::NamedTensors gathered_weights(BuiltModel& built, const RankContext& context,
                                          parallel::Values which = parallel::Values::all);

/// The same of all weights with the adapter merged into them. Changes the model, unless ranks share out the values.
checkpoint::NamedTensors merged_weights(BuiltModel& built, const RankContext& context);

/// Turns gradients into new weights.
struct OptimizerStack {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Schedule> schedule;
  std::unique_ptr<optim::GradScaler> scaler;  // null unless the precision needs loss scaling
  optim::Optimizer* average = nullptr;        // the optimizer, if it has an average of the weights
  optim::AverageRule average_rule = {};       // of train.ema and train.swa
};

OptimizerStack build_optimizer_stack(const Job& job, const RankContext& context, const train::Plan& plan,
                                     const BuiltModel& built);

/// What the model's tensors have: values, or, as in model_without_memory(), sizes alone.
enum class Weights { values, sizes };

/// All parts, in the order in which they are built; the first one is destroyed last. Not movable: the model refers to
/// the group in `context`.
struct TrainingSetup {
  /// `kept_global_batch`: global batch of the run that is resumed; 0: a new run. Plans a run from its first step; see
  /// go_on_from(). Every rank must call.
  explicit TrainingSetup(const Job& job, int64_t kept_global_batch = 0);
  /// The same with an existing place; `open` returns the datasets.
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

/// The order in which the job goes through its training data.
data::OrderFacts order_facts(const JobSpec& spec, const TrainingSetup& setup);

/// Plans the rest of a run whose steps have this global batch from `start` on: its plan and learning-rate curve.
void go_on_from(const train::PlanStart& start, const Job& job, TrainingSetup& setup);

/// Metrics get the prefix `role`: "val/loss". `most_samples` 0: the job's limit. `task` null: the job's.
train::Evaluator make_evaluator(const JobSpec& spec, std::shared_ptr<const data::Dataset> dataset,
                                const TrainingSetup& setup, std::string role, int64_t most_samples = 0,
                                std::shared_ptr<const tasks::Task> task = nullptr);

}  // namespace gputrain::app
