// Finding what a user most likely meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::config {

/// Changes (insert, delete, replace, swap neighbours) that turn one name into the other; case, '_' and '-' are free.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidates nearest to `name`, at most three, equally near; none when all are too far to be meant.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);

/// "did you mean 'a' or 'b'?", empty when there is nothing near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

/// The one of `allowed` that other tools call `theirs` (bfloat16, true for a choice between methods); empty: none.
std::string ours_for(std::string_view theirs, const std::vector<std::string>& allowed);

}  // namespace gputrain::config
