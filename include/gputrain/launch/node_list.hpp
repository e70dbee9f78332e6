// The lists of nodes and tasks in Slurm's environment variables, which are in a compact form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::launch {

/// Expands a list: "n[1-3,07],login" gives n1, n2, n3, n07, login, in that order. Returns empty, with the reason in
/// `problem`, if the list is malformed, has an invalid host name, or expands to more hosts than any cluster has.
std::optional<std::vector<std::string>> expand_node_list(std::string_view text, std::string& problem);

/// Expands counts: "2(x3),1" gives 2, 2, 2, 1. Returns empty, with the reason in `problem`, if the list is malformed.
std::optional<std::vector<int>> expand_task_counts(std::string_view text, std::string& problem);

}  // namespace gputrain::launch
