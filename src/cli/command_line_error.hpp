// What is wrong with a command line, and what to write instead.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::app {

/// Of `words`, in which the parser found `failure`.
Error command_line_error(const CLI::App& app, const CLI::ParseError& failure, const std::vector<std::string>& words);

/// Of what stands after the options of `launch`, which is not `run`.
Error launched_command_error(const CLI::App& launch, const std::vector<std::string>& words);

}  // namespace gputrain::app
