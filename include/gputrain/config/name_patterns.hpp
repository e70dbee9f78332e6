// Glob patterns over dotted names: `h.0.*`, `*.bias`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::config {

/// Returns whether the whole name matches; `*` stands for any characters, dots included, and `?` for one.
bool matches(std::string_view pattern, std::string_view name);

/// Suggests what to try instead of a pattern that matches no name: the nearest names, patterns of whole modules, or the
/// first parts of the names.
std::string pattern_hint(std::string_view pattern, const std::vector<std::string>& names);

}  // namespace gputrain::config
