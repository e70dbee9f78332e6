// A GPU that broke, or was taken away, under a program: no mistake of the user's or ours.
#pragma once

#include <exception>
#include <optional>

#include "gputrain/core/error.hpp"

namespace gputrain::device {

/// The Error(restart) to end with, if that is what happened.
std::optional<Error> fault_of(const std::exception& failure);

}  // namespace gputrain::device
