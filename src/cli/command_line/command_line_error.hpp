// Error messages for a wrong command line, with what to write instead.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::app {

/// The error for `words`, for which the parser threw `failure`.
Error command_line_error(const CLI::App& app, const CLI::ParseError& failure, const std::vector<std::string>& words);

/// The error for the words after the options of `launch`, if they are not a `run` command.
Error launched_command_error(const CLI::App& launch, const std::vector<std::string>& words);

}  // namespace gputrain::app
