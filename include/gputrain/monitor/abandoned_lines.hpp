// Who resumes at a step leaves what was written about later ones: it is cut out of curves and logs, and kept beside
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace gputrain::monitor {

/// Moves the lines for which `stays` is false from `path` to the end of `<path>.left`, in their order, and returns how
/// many. An absent file has none. Throws Error(environment) when the disk refuses; then `path` is as it was.
int64_t set_lines_aside(const std::filesystem::path& path, const std::function<bool(const std::string& line)>& stays);

/// The same for a log file of ours: the lines about steps past `resume_step` and evaluations past `evaluated_step` go;
/// warnings, errors and what else has happened stay. Nobody may have the file open.
int64_t cut_log(const std::filesystem::path& path, int64_t resume_step, int64_t evaluated_step);

}  // namespace gputrain::monitor
