// Paths in a job: `~` and `$HOME` at the beginning mean the home folder, as in a shell. Addresses are no paths.
#pragma once

#include <string_view>

#include "../yaml/scalar.hpp"
#include "gputrain/config/load.hpp"

namespace gputrain::config {

/// Returns the path with its home folder, or why it has none. Names that only a shell replaces (`~other`, `$NAME`) are
/// refused, and addresses such as s3://bucket/x, of which folders would be made.
Parsed<std::string> parse_path(std::string_view text, const Environment& environment);

}  // namespace gputrain::config
