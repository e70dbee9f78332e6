// Page of `gputrain top` about the runs of a folder.
#pragma once

#include <filesystem>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "top_page.hpp"

namespace gputrain::app {

/// Returns the runs that a folder stands for, by name: itself, the trials of a sweep, or those of the folders in it. A
/// folder where no start came to its first step is a run, too.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& folder);

/// Returns an object for each run, first those that go on, then the newest. "state" is running, paused, done, stopped
/// or failed; lost: it has not ended and does not run; elsewhere: the same, but on another host, where it may run.
std::vector<nlohmann::ordered_json> listed_runs(const std::filesystem::path& folder);

/// Returns a table of them. It has as many lines as there are runs, and one more.
TopPage runs_page(const std::filesystem::path& folder, const TopSize& size);

}  // namespace gputrain::app
