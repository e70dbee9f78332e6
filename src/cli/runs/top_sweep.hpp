// Page of `gputrain top` about a sweep.
#pragma once

#include <filesystem>
#include <vector>

#include "top_page.hpp"

namespace gputrain::app {

/// Returns whether the folder is that of a sweep.
bool is_sweep(const std::filesystem::path& folder);

/// Returns the folders of its trials that have begun.
std::vector<std::filesystem::path> trials_of(const std::filesystem::path& sweep);

/// Returns a table of the trials, the best first, with the step of those that are training.
TopPage sweep_page(const std::filesystem::path& sweep, const TopSize& size);

}  // namespace gputrain::app
