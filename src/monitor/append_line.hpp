// Files that grow by whole lines.
#pragma once

#include <filesystem>
#include <string>

namespace gputrain::monitor {

double seconds_since_epoch();

/// Appends `text`, a line with its line break; what does not fit is taken back, since half a line would spoil the next
/// one. With `sync` the line is on disk when this returns. False when the disk refused.
bool append_line(const std::filesystem::path& path, const std::string& text, bool sync);

}  // namespace gputrain::monitor
