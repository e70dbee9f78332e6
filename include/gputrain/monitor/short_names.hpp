// Names of folders for tables and charts: what tells them apart.
#pragma once

#include <string>
#include <vector>

namespace gputrain::monitor {

/// Returns the shortest parts of paths that tell them apart: "a" and "b" of runs/a/fold and runs/b/fold. A path that is
/// given twice has its number at the end.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

}  // namespace gputrain::monitor
