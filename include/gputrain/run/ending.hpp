// How a run ends: the summary file and the closing lines.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/hooks.hpp"
#include "gputrain/train/spending.hpp"
#include "gputrain/train/trainer.hpp"

namespace gputrain::app {

/// The band check of the job's `expect:` against the final metrics.
struct Expectation {
  bool exists = false;
  bool met = true;
  std::string text;  // "val/loss 1.87 in [1.8, 1.9]"
};

/// Throws Error(usage) if `expect:` names a metric that this job does not measure. Call before training.
void check_expected_metrics(const JobSpec& spec, const JobDatasets& datasets);

Expectation check_expectation(const JobSpec& spec, const monitor::Metrics& metrics);

/// Fills the summary of a run that has reached `progress`.
monitor::Summary summarize(const Job& job, const RankContext& context, const train::Plan& plan,
                           const train::Progress& progress, const train::LogHook& log);

/// Keeps the speed that the earlier summary recorded, if this attempt had no step left to train.
void keep_measured(monitor::Summary& summary, const nlohmann::ordered_json& earlier);

/// Returns the test metrics of an earlier attempt of this run that ended at this step; empty if there is none. Rank 0
/// reads them and broadcasts. Every rank must call.
monitor::Metrics tested_before(const nlohmann::ordered_json& earlier, const std::string& run_id, int64_t step,
                               comm::ProcessGroups& groups);

/// Records in summary.json why an attempt failed before training. A usage error restores the earlier summary instead.
void record_failed_start(const std::exception& failure, const std::string& run_id, const RunFolder& folder);

/// Sets status, reason and exit code of a run that is done or was stopped.
void conclude(monitor::Summary& summary, const train::Outcome& outcome, const Expectation& expectation, bool verify);

/// Records an end by an error in summary.json and returns that summary. Prints nothing.
monitor::Summary record_failure(monitor::Summary summary, const std::exception& failure, const RunFolder& folder);

struct EndingPage {
  const monitor::Summary& summary;
  const train::Plan& plan;
  const Expectation& expectation;
  const RunFolder& folder;
  std::string main_metric;              // "val/top1", the first of the results
  std::optional<train::Spending> cost;  // empty: the price is unknown
  std::string go_on;   // command that continues a stopped run; empty: the same one, which several ranks share
  std::string same;    // then: "the same command without --new"
  std::string longer;  // what a job that has ended needs to train on
  std::string use;     // command that uses the trained model; empty: none
};

/// Prints the last lines of a run: done, result, speed, cost, next, files.
void print_ending(monitor::Console& console, const EndingPage& page);

}  // namespace gputrain::app
