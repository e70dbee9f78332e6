// Starts processes of the program that need not load LibTorch, most of the time of a short command.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <string>
#include <vector>

namespace gputrain::testing_support {

/// Starts the program as a copy of one that has loaded LibTorch but not begun its main(). Returns 0 where that is not
/// possible, with GPUTRAIN_COLD_STARTS set, for what loads no LibTorch, and if a library may read one of the `changed`
/// variables while it is loaded.
/// `variables`: all of the new process. `changed`: those that tests set.
pid_t start_warm(const std::vector<std::string>& arguments, const std::vector<std::string>& variables,
                 const std::map<std::string, std::string>& changed, const std::array<int, 3>& streams);

}  // namespace gputrain::testing_support
