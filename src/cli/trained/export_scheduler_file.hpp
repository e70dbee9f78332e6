// Formats of `gputrain export` that are files for schedulers.
#pragma once

#include "../commands.hpp"

namespace gputrain::app {

/// Returns whether the format is such a file. Throws Error(usage) for options of the other kind of format.
bool is_for_scheduler(const ExportRequest& request);

/// Writes the file, to stdout unless the request names one. Returns the exit code.
int export_scheduler_file(const ExportRequest& request);

}  // namespace gputrain::app
