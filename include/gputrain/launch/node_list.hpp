// The lists of nodes and of tasks that Slurm writes into the environment, in their compact form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::launch {

/// "n[1-3,07],login" is n1, n2, n3, n07, login, in that order. A list that is malformed, names what is no host name, or
/// unfolds to more hosts than any cluster has, gives nothing and says in `problem` what is wrong.
std::optional<std::vector<std::string>> expand_node_list(std::string_view text, std::string& problem);

/// "2(x3),1" is 2, 2, 2, 1.
std::optional<std::vector<int>> expand_task_counts(std::string_view text, std::string& problem);

}  // namespace gputrain::launch
