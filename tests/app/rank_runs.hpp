// Jobs on several ranks, and what tests ask of them.
#pragma once

#include <string>
#include <vector>

#include "app/program.hpp"

namespace gputrain::testing_support {

/// Starts ranks by hand, and returns rank 0's result; the others must end as it does.
Result ranks(int world, const std::string& job, const std::string& output, const std::vector<std::string>& more = {});

/// A training metric of a run, one value per step.
std::vector<double> values(const std::string& metrics, const std::string& name);

/// Compares the 20 losses of two metrics files.
void expect_equal_losses(const std::string& a, const std::string& b, double tolerance);

/// Takes a run's newest checkpoint away from a copy of it: `to` has to take the steps since the one before again.
void copy_without_the_end(const std::string& from, const std::string& to);

}  // namespace gputrain::testing_support
