// Completion of command lines in shells.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace gputrain::app {

/// Returns completions of the last of `words`. Empty: the shell completes names of files. `names`: returns those of a
/// kind, "keys" of a job or "entries" of catalogs; it is called only if one of them is needed.
std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words,
                                     const std::function<std::vector<std::string>(const std::string& kind)>& names);

/// Returns the lines with which a shell asks `gputrain complete`. `shell`: bash, zsh or fish.
std::string completion_script(const std::string& shell);

}  // namespace gputrain::app
