// Glob patterns over dotted names: `h.0.*`, `*.bias`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::config {

/// Returns whether the whole name matches; `*` stands for any characters, dots included, and `?` for one.
bool matches(std::string_view pattern, std::string_view name);

/// A pattern of a list in which `!` in front takes names away again.
struct SignedPattern {
  std::string_view pattern;
  bool takes_away;
};
SignedPattern signed_pattern(std::string_view text);

/// Returns whether such patterns choose a name: the last that matches counts. `otherwise`: none matches.
bool are_for(const std::vector<std::string>& patterns, std::string_view name, bool otherwise);

/// Suggests what to try instead of a pattern that matches no name: the nearest names, patterns of whole modules, or the
/// first parts of the names.
std::string pattern_hint(std::string_view pattern, const std::vector<std::string>& names);

}  // namespace gputrain::config
