// The agent of one host: starts, watches and ends the ranks there on the orders of a launcher.
#pragma once

#include <string>

namespace gputrain::launch {

/// Serves a launcher over stdin and stdout until it says goodbye or is gone; no rank is left then. Reports `version` to
/// the launcher. Returns the exit code of this process.
int serve_agent(const std::string& version);

}  // namespace gputrain::launch
