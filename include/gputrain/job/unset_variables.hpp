// Errors about files whose names are defaults of the variables of a job.
#pragma once

#include "gputrain/core/error.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Returns the error, with the advice to set a variable if its place is the default of one that is not set:
/// "${env:MODEL:-model}" in the job's file.
Error with_unset_variable(const Job& job, const Error& error);

}  // namespace gputrain::app
