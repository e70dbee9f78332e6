#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace gputrain::testing_support {

/// Starts a program from disk, with all its variables and its stdin, stdout and stderr. The kernel kills it when the
/// thread that started it has ended: a killed test leaves nothing.
pid_t spawn(std::vector<std::string> arguments, std::vector<std::string> variables, const std::array<int, 3>& streams);

}  // namespace gputrain::testing_support
