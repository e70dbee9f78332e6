// The place from which a run would start, for a dry run: looking for it leaves no trace.
#pragma once

#include <string>

#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Says it as the start page does. Sizes and states of checkpoints are compared with their manifests, tensors are not
/// read. Throws what a run would for what is no checkpoint or another job's, and Error(checkpoint) where there is none
/// but must be, or none is good.
std::string preview_resume(const Job& job, bool accept_changes);

}  // namespace gputrain::app
