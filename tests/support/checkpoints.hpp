// Comparison of checkpoints, bit for bit.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gputrain::testing_support {

/// Returns the tensors that are not the same in two checkpoints, as "model transformer.wte.weight", and those that only
/// one of them has. The folder of a run stands for its newest good checkpoint.
std::vector<std::string> differing_tensors(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace gputrain::testing_support
