// What a user is told when memory ran out: how much there was, what took it, and which keys to set, best first.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "gputrain/core/error.hpp"
#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

/// The error to end with when `failure` is a shortage of memory. `assembly` null: it was not put together yet; `when`:
/// "in step 12".
std::optional<Error> out_of_memory_error(const std::exception& failure, const Job& job, const Assembly* assembly,
                                         const std::string& when);

}  // namespace gputrain::app
