// Variables in the job's `env:`, which libraries read when they load.
#pragma once

#include <map>
#include <string>

namespace gputrain::app {

/// Sets the variables in this process. If one of them has another value now, restarts the program in this process
/// (exec) with all of them. Call before anything is opened and any thread starts. Throws Error(environment).
void take_environment(const std::map<std::string, std::string>& variables);

/// Does the same for a command that only looks at the job. Throws Error(usage) that names a variable that loads code
/// into a process, such as LD_PRELOAD, unless the process has that value already.
void take_harmless_environment(const std::map<std::string, std::string>& variables);

}  // namespace gputrain::app
