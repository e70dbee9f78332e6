// Appending of whole lines and records to files.
#pragma once

#include <filesystem>
#include <string>

namespace gputrain::monitor {

double seconds_since_epoch();

/// Appends `text`, one line with its newline or one record. If the disk takes only a part, removes that part, because
/// it would corrupt what follows. With `sync`, the line is durable when this returns. Returns false on a disk error.
bool append_line(const std::filesystem::path& path, const std::string& text, bool sync);

}  // namespace gputrain::monitor
