// Advice from the files of `run --profile`: the most expensive parts, and settings to try.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::app {

/// Part of a step's time.
struct ProfileItem {
  std::string name;
  double seconds = 0;  // per step
  double share = 0;    // part of a step
  double calls = 0;    // in a step
};

/// Returns the ten items that cost most: kernels of a GPU, if there was one; otherwise operators, and the loop's work
/// between them. Throws nlohmann::json::exception.
std::vector<ProfileItem> top_of_profile(const nlohmann::json& summary);

/// Returns one sentence for each finding, the most expensive first: what, how much, which key to change.
std::vector<std::string> profile_advice(const nlohmann::json& summary);

}  // namespace gputrain::app
