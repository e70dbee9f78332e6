// Lines of curves and logs after the checkpoint of a resumed run, which abandons them: they are moved to a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace gputrain::monitor {

/// Moves the lines for which `stays` is false from `path` to the end of `<path>.left`, in order, and returns their
/// number (0 if the file is absent). Throws Error(environment) on a disk error and leaves `path` unchanged.
int64_t archive_lines(const std::filesystem::path& path, const std::function<bool(const std::string& line)>& stays);

/// Archives lines of one of our log files about steps after `resume_step` and evaluations after `evaluated_step`; keeps
/// warnings, errors and other events. No process may have the file open.
int64_t truncate_log(const std::filesystem::path& path, int64_t resume_step, int64_t evaluated_step);

}  // namespace gputrain::monitor
