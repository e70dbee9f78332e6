// The program's log: one line per event to the run's log file, warnings and errors also to stderr.
#pragma once

#include <filesystem>
#include <string_view>

namespace gputrain::log {

void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);

/// From now on every line also goes to `path` (appended). Throws Error(environment) when it cannot be opened.
void open_file(const std::filesystem::path& path);

/// Whether there is such a file.
bool has_file();

/// Silences stderr on ranks whose lines would repeat rank 0's; the file still receives everything.
void set_stderr_enabled(bool enabled);
/// A warning of this rank alone, which stderr gets also where it is silenced.
void own_warning(std::string_view message);

/// Called before anything is written to stderr, so that a redrawn status line is cleared first.
void set_before_stderr(void (*callback)());

}  // namespace gputrain::log
