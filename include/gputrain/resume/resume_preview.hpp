// The place from which a run would start, for a dry run: looking for it leaves no trace.
#pragma once

#include <string>

#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Returns the line of the start page. Sizes and states of checkpoints are compared with their manifests, tensors are
/// not read. Throws as a run would for a folder that is no checkpoint, or one of another job. Throws Error(checkpoint)
/// if there must be a checkpoint and is none, or none is good.
std::string preview_resume(const Job& job, bool accept_changes);

}  // namespace gputrain::app
