// Error messages for a wrong command line, with a correction.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::app {

/// Returns the error for `words`, for which the parser threw `failure`.
Error command_line_error(const CLI::App& app, const CLI::ParseError& failure, const std::vector<std::string>& words);

/// Returns the error for the words after the options of `launch`, if they are not a `run` command.
Error launched_command_error(const CLI::App& launch, const std::vector<std::string>& words);

}  // namespace gputrain::app
