// Settings that do nothing in the job they are in: told, as whoever wrote them expects something of them.
#pragma once

#include <string>
#include <vector>

#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

/// A sentence for each key that the job sets to other than its default and that has no effect on this model and data,
/// with its place: "job.yaml:9:3: eval.interval has no effect: there is no data.val". What depends on the machine or on
/// the number of ranks alone is left out: a job is for several.
std::vector<std::string> idle_keys(const Job& job, const Assembly& assembly);

}  // namespace gputrain::app
