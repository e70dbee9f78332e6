// The program's log: one line per event in the run's log file; warnings and errors also on stderr.
#pragma once

#include <filesystem>
#include <string_view>

namespace gputrain::log {

void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);

/// Appends all further lines to `path` too. Throws Error(environment) if the file cannot be opened.
void open_file(const std::filesystem::path& path);

/// Returns whether a log file is open.
bool has_file();

/// Turns stderr off on ranks that would repeat rank 0's lines; the file still gets everything.
void set_stderr_enabled(bool enabled);
/// Warns about something that concerns only this rank: goes to stderr even if stderr is turned off.
void own_warning(std::string_view message);

/// Sets a callback that runs before each write to stderr, for example to clear a redrawn status line.
void set_before_stderr(void (*callback)());

}  // namespace gputrain::log
