// Environment of a trial beside others.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gputrain::app {

/// Returns the environment of the trial in one of `slots` slots: this process's, with a GPU of its own or its share of
/// the cores.
std::vector<std::string> environment_of_slot(size_t slot, size_t slots, bool on_cpu);

}  // namespace gputrain::app
