// Everything a run is made of, built from the job in the order data takes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gputrain/comm/imagined.hpp"
#include "gputrain/comm/process_groups.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/open.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/optim/grad_scaler.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"
#include "gputrain/setup/micro_batch_choice.hpp"
#include "gputrain/setup/reduction.hpp"
#include "gputrain/train/evaluator.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::app {

/// Where this process computes and with whom.
struct Place {
  launch::Launch launch;
  device::CpuThreads threads;
  at::Device device = at::kCPU;
  ops::Policy policy;
  comm::ProcessGroups groups;

  int rank() const noexcept { return launch.rendezvous.rank; }
};

/// Sets the process up for the job: threads, device, numerics, random seeds, and the meeting of the ranks.
/// Every rank must call.
Place take_place(const Job& job);

/// The same for a rank whose others are not there: it computes on this machine's CPU with all its cores, and nothing is
/// sent. What would be is added to `traffic`.
Place imagine_place(const JobSpec& spec, const comm::Rendezvous& at, std::shared_ptr<comm::Traffic> traffic);

/// Throws the mistake that is being handled again. It was made before the ranks met: so they meet for this, and who has
/// made the same one as rank 0 leaves it to rank 0 to tell.
[[noreturn]] void fail_unmet(const Error& mistake);

/// Throws the failure that is being handled again, after the other ranks have been told of it.
[[noreturn]] void fail(Place& place, const std::exception& failure);

/// The job's datasets and what they say to the model; val and test are null when the job has none.
struct Datasets : data::Datasets {
  models::DataFacts facts;
  bool is_text = false;

  int64_t tokens_per_sample() const { return is_text ? facts.input_shape.front() : 0; }
};

Datasets open_datasets(const Job& job);

/// The model in its arena, initialised from the seed or from pretrained weights.
struct BuiltModel {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<device::Arena> arena;
  std::vector<at::Tensor> parameters;  // trainable ones
  int64_t parameter_count = 0;         // elements of all
  int64_t trainable_count = 0;         // of these, elements that model.freeze leaves to train
  int64_t classes_left_out = 0;        // of a last layer that pretrained weights have otherwise
  bool sync_batch_norm = false;        // its batch norm in training is over the batches of all ranks
  std::vector<device::Range> owners;   // what each rank updates, where they share that out; otherwise empty
};

/// Every rank must call.
BuiltModel build_model(const Job& job, const Datasets& datasets, Place& place);

/// What turns gradients into new weights.
struct Updates {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Schedule> schedule;
  std::unique_ptr<optim::GradScaler> scaler;  // null unless the precision needs loss scaling
};

Updates build_updates(const Job& job, const Place& place, const train::Plan& plan, const BuiltModel& built);

/// All of it, in the order it is built; what is declared first dies last. It stays where it is: the model knows the
/// group in `place`.
struct Assembly {
  /// `kept_global_batch`: of the run that goes on, 0 for a new one. Every rank must call.
  explicit Assembly(const Job& job, int64_t kept_global_batch = 0);
  /// The same at a place that is taken; `open` gives the datasets.
  Assembly(const Job& job, Place at, const std::function<Datasets()>& open, int64_t kept_global_batch = 0);
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  Place place;
  Datasets datasets;
  train::Plan plan;
  BuiltModel built;
  Updates updates;
  Reduction reduction;
  MicroBatchChoice micro_batch;  // empty where the job says
};

/// Finds out before training what would fail after it: a prompt that the vocabulary cannot spell.
void check_sample(const Job& job, const Datasets& datasets);

train::Plan plan_run(const JobSpec& spec, const Datasets& datasets, const Place& place, int64_t kept_global_batch = 0);
data::LoaderOptions loader_options(const JobSpec& spec, const data::Dataset& dataset, const Place& place,
                                   const train::BatchPlan& batch);

/// Metrics get the name of `role`: "val/loss". `most_samples` 0: as many as the job says.
train::Evaluator make_evaluator(const JobSpec& spec, std::shared_ptr<const data::Dataset> dataset,
                                const Assembly& assembly, std::string role, int64_t most_samples = 0);

}  // namespace gputrain::app
