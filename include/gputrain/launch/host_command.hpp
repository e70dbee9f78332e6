// How this program is started on a host: directly here, by the user's ssh elsewhere.
#pragma once

#include <string>
#include <vector>

#include "gputrain/launch/hosts.hpp"

namespace gputrain::launch {

/// Returns the environment of this process: "NAME=value".
std::vector<std::string> own_environment();

/// Returns the command line that runs this program, which lies at the same path on all hosts, with these arguments. ssh
/// passes them to a shell there: what a shell would not read as one plain word is refused by Error(usage).
std::vector<std::string> command_on(const Host& host, const std::vector<std::string>& arguments);

}  // namespace gputrain::launch
