// All ranks write one checkpoint into one folder. Next to each file the rank writes a note that the file is durable,
// and rank 0 collects the notes. Ranks communicate through the file system, not a collective, because they write in the
// background.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"

namespace gputrain::checkpoint {

/// Tells rank 0 that file `name` is durable.
void report_shard(const std::filesystem::path& folder, const std::string& name, const Manifest::File& file);

/// Tells rank 0 that file `name` will not be written. Ignores a failure to write even this.
void report_shard_failure(const std::filesystem::path& folder, const std::string& name,
                          const std::string& reason) noexcept;

/// Waits for other ranks' files and removes their notes. Throws Error(checkpoint) with the file's name if a rank failed
/// or the wait timed out.
std::map<std::string, Manifest::File> await_shards(const std::filesystem::path& folder,
                                                   const std::vector<std::string>& names, double patience_seconds);

}  // namespace gputrain::checkpoint
