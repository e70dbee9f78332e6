// Guesses which name a user meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::config {

/// Counts the edits (insert, delete, replace, swap neighbours) from one name to the other; ignores case, '_' and '-'.
size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidates with the smallest distance to `name`, at most three; empty if all are too far away.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);

/// Returns "did you mean 'a' or 'b'?"; empty if no candidate is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

/// Translates another tool's value into one of `allowed` (bfloat16 to bf16, true to block); empty if there is none.
std::string ours_for(std::string_view theirs, const std::vector<std::string>& allowed);

}  // namespace gputrain::config
