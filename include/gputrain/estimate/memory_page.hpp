// The out-of-memory message: how much memory there was, what used it, and which keys to set, best first.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "gputrain/core/error.hpp"
#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

/// The error to report if `failure` is a shortage of memory, else nothing. `assembly` is null if it was not built yet.
/// `when` names the activity: "in step 12".
std::optional<Error> out_of_memory_error(const std::exception& failure, const Job& job, const Assembly* assembly,
                                         const std::string& when);

}  // namespace gputrain::app
