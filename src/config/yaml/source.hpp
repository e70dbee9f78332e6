// Reads files with care: refuses files that are too large, not regular or not UTF-8 before anything parses them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "../problems.hpp"
#include "gputrain/config/node.hpp"

namespace gputrain::config {

inline constexpr size_t kMaxFileBytes = size_t{4} << 20;
inline constexpr size_t kMaxLineBytes = size_t{64} << 10;

/// Reads a file. Returns null and reports to `problems` if it cannot. `asked_by`: the include that names it, if any.
std::shared_ptr<const Source> read_source(const std::filesystem::path& path, const SourceLocation& asked_by,
                                          Problems& problems);

/// Returns the text without the byte order mark that some editors put before it.
std::string without_byte_order_mark(std::string text);

/// Reports text that is not UTF-8, has control characters or has a line over 64 KiB; returns true if there is none.
bool is_clean(const std::shared_ptr<const Source>& source, Problems& problems);

/// Returns the place of the byte at `offset`.
SourceLocation location_at(const std::shared_ptr<const Source>& source, size_t offset);

}  // namespace gputrain::config
