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

}  // namespace gputrain::config
