// How a run ends: the summary file and the closing lines.
#pragma once

#include <exception>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/assembly.hpp"
#include "gputrain/train/hooks.hpp"
#include "gputrain/train/trainer.hpp"

namespace gputrain::app {

/// The band check of the job's `expect:` against the final metrics.
struct Expectation {
  bool exists = false;
  bool met = true;
  std::string text;  // "val/loss 1.87 in [1.8, 1.9]"
};

/// Throws Error(usage) where `expect:` names what the job does not measure: better before training than after it.
void check_expected_metrics(const JobSpec& spec, const Datasets& datasets);

Expectation check_expectation(const JobSpec& spec, const monitor::Metrics& metrics);

/// What summary.json says of a run that got this far.
monitor::Summary summarize(const Job& job, const Place& place, const train::Plan& plan, const train::Progress& progress,
                           const train::LogHook& log);

/// A start that finds nothing left to train measures nothing: what the one before it measured stays.
void keep_measured(monitor::Summary& summary, const nlohmann::ordered_json& earlier);

/// What an earlier attempt has measured on the test data, where it ended at this step of this run. Every rank must
/// call, and gets what rank 0 knows.
monitor::Metrics tested_before(const nlohmann::ordered_json& earlier, const std::string& run_id, int64_t step,
                               comm::ProcessGroups& groups);

/// Records in summary.json why an attempt failed before it came to train; a command that was refused leaves no trace
/// there.
void record_failed_start(const std::exception& failure, const std::string& run_id, const RunFolder& folder);

/// Fills in how it ended: done, or stopped by a signal; the exit code is the summary's.
void conclude(monitor::Summary& summary, const train::Outcome& outcome, const Expectation& expectation, bool verify);

/// Records an end by an error in summary.json, and returns what it recorded; says nothing itself.
monitor::Summary record_failure(monitor::Summary summary, const std::exception& failure, const RunFolder& folder);

/// The last lines of a run: done, result, speed, what the next command does after this `checkpoint.resume`, files.
void print_ending(monitor::Console& console, const monitor::Summary& summary, const train::Plan& plan,
                  const Expectation& expectation, const RunFolder& folder, const std::string& resume);

}  // namespace gputrain::app
