// Command `gputrain eval`: evaluates trained weights on the job's data.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "eval_suite.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/estimate/micro_batch.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/setup/references.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::app {
namespace {

std::shared_ptr<const data::Dataset> dataset_for(const std::string& role, const JobDatasets& datasets) {
  auto dataset = role == "train" ? datasets.train : role == "test" ? datasets.test : datasets.val;
  if (dataset == nullptr) {
    throw Error(ExitCode::usage,
                {.what = "the job has no data." + role, .hint = "--set data." + role + ".path=FILE, or --on train"});
  }
  return dataset;
}

/// Refuses weights whose target numbers have another meaning than the data's. Warns about other names of classes in a
/// published config.json, which may mean the same, except for the weights that the model started from.
void check_targets(const std::filesystem::path& weights, const TrainingSetup& setup) {
  check_learned_from(weights, setup.datasets);
  const Targets theirs = targets_of(weights);
  if (!theirs.are_published || weights == setup.built.pretrained) return;
  if (const std::string difference = other_targets(theirs, *setup.datasets.train); !difference.empty())
    log::warning("the weights were trained on other data: " + setup.datasets.target_kind() + " " + difference);
}

/// Returns weights that exist: the given ones, the run's or, if no run has saved any, those to start from.
std::filesystem::path weights_to_evaluate(const EvalRequest& request, const Job& job) {
  if (!request.weights.empty()) return request.weights;
  const RunFolder folder{job.output_dir};
  const auto trained = weights_of_run(job, folder);
  if (!trained.empty()) return trained;
  const auto pretrained = job.spec().model.pretrained_path();
  if (!pretrained.empty() && !exists(folder.checkpoints())) return pretrained;
  throw Error(ExitCode::data, {.what = "there are no trained weights",
                               .where = folder.path.string(),
                               .hint = "train first (gputrain run), or name a run folder: --output-dir DIR, "
                                       "--weights DIR"});
}

/// Takes the job, and the weights of a checkpoint, if a run or one of its checkpoints stands in the place of the job.
EvalRequest with_job_of_run(EvalRequest request) {
  const std::filesystem::path named = request.job.file;
  if (!is_directory(named)) return request;
  const RunFolder run = run_at(named);
  if (!exists(run.resolved()))
    throw Error(ExitCode::usage,
                {.what = "neither a job nor a run: it has no job.resolved.yaml", .where = named.string()});
  request.job.file = run.resolved().string();
  if (!request.job.output_dir) request.job.output_dir = run.path.string();
  if (request.weights.empty() && run.path != named) request.weights = named.string();
  return request;
}

}  // namespace

int eval_command(const EvalRequest& given) {
  if (!given.suite.file.empty()) return eval_suite(given);
  const EvalRequest request = with_job_of_run(given);
  Job job = load_job_of_weights(request.job);
  if (job.spec().train.searches_micro_batch()) {
    if (const auto found = found_before(job)) job = with_micro_batch(job, *found);
  }
  monitor::Console console(monitor::Console::detect(launch::read_environment().rendezvous.rank == 0 && !request.json));
  TrainingSetup setup(job);
  RankContext& context = setup.context;
  const auto dataset = dataset_for(request.on, setup.datasets);
  const std::filesystem::path weights = weights_to_evaluate(request, job);
  take_references(job, setup,
                  {.file = RunFolder{job.output_dir}.references(),
                   .split = request.on,
                   .keeps = false});  // while the model is as before training
  const bool is_base = setup.built.adapter && weights == setup.built.pretrained;  // loaded already
  check_targets(weights, setup);
  if (!is_base) load_trained(weights, setup.built);
  train::StopPoll never(context.groups, {});
  const train::Evaluator evaluator = make_evaluator(job.spec(), dataset, setup, request.on);
  const auto metrics = evaluator.run(*setup.built.model, context.groups, never);
  never.finish();
  context.groups.control().barrier("end");
  if (context.rank() != 0) return 0;
  if (request.json) std::printf("%s\n", nlohmann::json(metrics).dump(2).c_str());
  const std::string prefix = request.on + "/";
  const auto columns =
      train::metric_columns(metrics, prefix, prefix + main_metric_of(job.spec(), *setup.datasets.task));
  console.line("eval", weights.string() + " on " + evaluator.describe() + ": " + monitor::joined(columns));
  return 0;
}

}  // namespace gputrain::app
