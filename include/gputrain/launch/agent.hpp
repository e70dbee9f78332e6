// The processes of one host: started, watched and ended at the word of a launcher.
#pragma once

#include <string>

namespace gputrain::launch {

/// Serves a launcher over stdin and stdout until that says goodbye or is gone; then no rank is left. `version` is told
/// to it. Returns the exit code of the agent's process.
int serve_agent(const std::string& version);

}  // namespace gputrain::launch
