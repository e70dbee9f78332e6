// The job's `env:`: variables that libraries read when they are loaded.
#pragma once

#include <map>
#include <string>

namespace gputrain::app {

/// Gives this process the variables: where one of them is not set so yet, the program begins anew, in this same
/// process, with all of them. Before anything is opened or any thread started. Throws Error(environment).
void take_environment(const std::map<std::string, std::string>& variables);

}  // namespace gputrain::app
