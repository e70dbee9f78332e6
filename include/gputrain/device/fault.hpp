// Detects that a GPU broke or was taken away, which is neither the user's mistake nor a bug.
#pragma once

#include <exception>
#include <optional>

#include "gputrain/core/error.hpp"

namespace gputrain::device {

/// An Error(restart) if `failure` is such a failure.
std::optional<Error> fault_of(const std::exception& failure);

}  // namespace gputrain::device
