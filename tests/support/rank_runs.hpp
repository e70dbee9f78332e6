// Runs of several ranks started by hand, and their curves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {

using RankPrograms = std::vector<std::unique_ptr<Program>>;

/// Starts a training run of so many ranks.
RankPrograms start_ranks(int world, const std::string& job, const std::string& output,
                         const std::vector<std::string>& more = {});

/// Waits for all; returns rank 0's result. The others must end with the same exit code.
Result wait_for(RankPrograms& programs);

/// Both.
Result ranks(int world, const std::string& job, const std::string& output, const std::vector<std::string>& more = {});

/// Twenty steps whose losses differ by at most `tolerance`. Takes two metrics.jsonl.
void expect_equal_losses(const std::string& a, const std::string& b, double tolerance);

/// Takes a run's newest checkpoint away from a copy of it: `to` has to take the steps since the one before again.
void copy_without_the_end(const std::string& from, const std::string& to);

}  // namespace gputrain::testing_support
