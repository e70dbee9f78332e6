// Runs of several ranks that the test starts itself, and their metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {

using RankPrograms = std::vector<std::unique_ptr<Program>>;

/// Starts `world` ranks of `gputrain` with these arguments.
RankPrograms start_ranks(int world, std::vector<std::string> arguments);

/// The same of a training run.
RankPrograms start_ranks(int world, const std::string& job, const std::string& output,
                         const std::vector<std::string>& more = {});

/// Waits for all ranks and returns rank 0's result. The others must end with the same exit code.
Result wait_for(RankPrograms& programs);

/// start_ranks() and wait_for().
Result ranks(int world, const std::string& job, const std::string& output, const std::vector<std::string>& more = {});

/// Expects twenty steps whose losses differ by at most `tolerance`. Takes two metrics.jsonl files.
void expect_equal_losses(const std::string& a, const std::string& b, double tolerance);

/// Copies a run without its newest checkpoint: `to` must repeat the steps since the one before.
void copy_without_the_end(const std::string& from, const std::string& to);

}  // namespace gputrain::testing_support
