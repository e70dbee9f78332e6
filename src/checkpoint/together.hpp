// Ranks write one checkpoint together: each its files into one folder, and beside each a note that it is durable. Rank
// 0 takes the notes in. They meet on the disk and not in a collective, because they write in the background.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"

namespace gputrain::checkpoint {

/// Tells rank 0 that file `name` of the folder is durable.
void hand_in(const std::filesystem::path& folder, const std::string& name, const Manifest::File& file);

/// Tells rank 0 that it will not come. Does nothing where even that cannot be written.
void hand_in_failure(const std::filesystem::path& folder, const std::string& name, const std::string& reason) noexcept;

/// Waits for these files of other ranks and takes their notes away. Throws Error(checkpoint) that names the file when
/// one failed, or has not come in time.
std::map<std::string, Manifest::File> collect(const std::filesystem::path& folder,
                                              const std::vector<std::string>& names, double patience_seconds);

}  // namespace gputrain::checkpoint
