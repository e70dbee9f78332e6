// State of a run in progress, for the verbs that show it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gputrain::app {

/// Asks the run in a folder, or at HOST:PORT. Throws Error(environment) if no run of gputrain answers there.
nlohmann::json state_of(const std::string& run);

/// Does the same, or reads the files of a run that has ended: `has_ended` is then true.
nlohmann::json state_of_any(const std::string& run);

/// Throws the error for an answer that is no state of a run.
[[noreturn]] void refuse_other_server(const std::string& run);

}  // namespace gputrain::app
